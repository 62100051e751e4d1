import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { Highlighter } from "../src/highlighter";

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("window", globalThis);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const place = (line: number) => ({ file: 0, line });

test("skips lines passed on the way", async () => {
  const send = vi.fn().mockResolvedValue(true);
  const highlighter = new Highlighter(send);
  highlighter.mark(place(1));
  highlighter.mark(place(2));
  await vi.runAllTimersAsync();
  highlighter.mark(place(2));
  await vi.runAllTimersAsync();
  expect(send.mock.calls).toEqual([[place(2)]]);
});

test("sends one request at a time, the latest last", async () => {
  const answers: ((done: boolean) => void)[] = [];
  const send = vi.fn(() => new Promise<boolean>((resolve) => answers.push(resolve)));
  const highlighter = new Highlighter(send);
  for (const line of [1, 2, 3]) {
    highlighter.mark(place(line));
    await vi.runAllTimersAsync();
  }
  expect(send.mock.calls).toEqual([[place(1)]]);
  answers[0]!(true);
  await vi.runAllTimersAsync();
  expect(send.mock.calls).toEqual([[place(1)], [place(3)]]);
});

test("asks a busy server again, for a while", async () => {
  const send = vi.fn().mockResolvedValue(false);
  const highlighter = new Highlighter(send);
  highlighter.mark(place(1));
  await vi.runAllTimersAsync();
  expect(send).toHaveBeenCalledTimes(18);
  send.mockResolvedValue(true);
  highlighter.mark(place(1));
  await vi.runAllTimersAsync();
  expect(send).toHaveBeenCalledTimes(19);
});

test("sends another line at once while the server refuses", async () => {
  const send = vi.fn((wanted: { line: number } | null) => Promise.resolve(wanted?.line === 2));
  const highlighter = new Highlighter(send);
  highlighter.mark(place(1));
  await vi.advanceTimersByTimeAsync(20_000);
  send.mockClear();
  highlighter.mark(place(2));
  await vi.advanceTimersByTimeAsync(100);
  expect(send.mock.calls).toEqual([[place(2)]]);
});

test("tries again what was refused when there is a newer measurement", async () => {
  const send = vi.fn().mockResolvedValue(false);
  const highlighter = new Highlighter(send);
  highlighter.mark(place(1));
  await vi.runAllTimersAsync();
  send.mockClear().mockResolvedValue(true);
  highlighter.retry();
  await vi.runAllTimersAsync();
  highlighter.retry();
  await vi.runAllTimersAsync();
  expect(send.mock.calls).toEqual([[place(1)]]);
});
