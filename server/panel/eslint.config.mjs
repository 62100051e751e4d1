import eslint from "@eslint/js";
import { defineConfig, globalIgnores } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig(globalIgnores(["dist", "**/*.mjs"]), {
  files: ["**/*.ts"],
  extends: [eslint.configs.recommended, tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
  languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
  rules: {
    // Everything in the document is untrusted text: nothing may be parsed as HTML.
    "no-restricted-properties": [
      "error",
      { property: "innerHTML", message: "Use textContent or element()." },
      { property: "outerHTML", message: "Use textContent or element()." },
      { property: "insertAdjacentHTML", message: "Use textContent or element()." },
    ],
    // `noUncheckedIndexedAccess` asks at each index; `!` answers where the index is a node's own.
    "@typescript-eslint/no-non-null-assertion": "off",
    "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
  },
});
