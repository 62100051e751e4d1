// Builds the HTML of the panel's webview: the page from the server, with its script and style inlined.

export type Theme = "dark" | "light" | "high-contrast" | "high-contrast-light";

/** State that the webview persists, to restore the panel after a window reload. */
export interface PanelState {
  /** URI of the workspace folder. */
  root: string;
}

/** Message to the page when the theme changes. */
export interface ThemeMessage {
  theme: Theme;
}

/** The page as served by the server. */
export interface BuiltPage {
  html: string;
  script: string;
  style: string;
}

interface Panel {
  page: BuiltPage;
  /** The server's id of the workspace. */
  workspace: number;
  theme: Theme;
  /** Random CSP nonce for the script and the style. */
  nonce: string;
  state: PanelState;
}

/** Returns the panel's HTML. The page requests its documents from the extension; it has no network access. */
export function panelDocument({ page, workspace, theme, nonce, state }: Panel): string {
  const policy = `default-src 'none'; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'; img-src data:`;
  const host = literal({ workspace, theme, state });
  // Replacer functions, because `$` is special in replacement strings.
  return page.html
    .replace("<head>", () => `<head>\n<meta http-equiv="Content-Security-Policy" content="${attribute(policy)}">`)
    .replace(/<link rel="icon"[^>]*>\s*/, "")
    .replace(/<link rel="stylesheet"[^>]*>/, () => `<style nonce="${nonce}">${page.style}</style>`)
    .replace(
      /<script src="panel\.js"><\/script>/,
      () => `<script type="application/json" id="host">${host}</script>\n<script nonce="${nonce}">${inScript(page.script)}</script>`,
    );
}

/** Returns the HTML to show while no server is running. */
export function waitingDocument(message: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<title>Ridgeline</title>
</head>
<body><p role="status">${attribute(message)}</p></body>
</html>`;
}

function attribute(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Serializes a value as JSON that cannot close the script element. */
function literal(value: unknown): string {
  return JSON.stringify(value).replaceAll("<", String.raw`\u003c`);
}

/** Escapes a script so that it cannot close its element. Outside string literals it contains neither sequence. */
function inScript(text: string): string {
  return text.replaceAll(/<(?=\/script|!--)/gi, String.raw`\x3c`);
}
