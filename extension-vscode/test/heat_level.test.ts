import { expect, test } from "vitest";

import { heatLevel } from "../src/heat_level";

test("the heat level follows the share", () => {
  const shares = [0, 0.019, 0.02, 0.05, 0.1, 0.25, 1];
  expect(shares.map(heatLevel)).toEqual([0, 0, 1, 2, 3, 4, 4]);
});
