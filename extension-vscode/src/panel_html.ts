// The document of the panel's webview: the page that the server serves, with its script and style inside.

export type Theme = "dark" | "light";

/** What the webview keeps, so that the panel comes back when the window is loaded again. */
export interface PanelState {
  /** URI of the workspace folder. */
  root: string;
}

/** The message that tells the page another theme. */
export interface ThemeMessage {
  theme: Theme;
}

/** The page as the server serves it. */
export interface BuiltPage {
  html: string;
  script: string;
  style: string;
}

interface Panel {
  page: BuiltPage;
  /** The number that the server gives the workspace. */
  workspace: number;
  theme: Theme;
  /** Random, for the one script and the one style. */
  nonce: string;
  state: PanelState;
}

/** The panel, which asks the editor for its documents: it loads nothing and reaches no address. */
export function panelDocument({ page, workspace, theme, nonce, state }: Panel): string {
  const policy = `default-src 'none'; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'; img-src data:`;
  const host = literal({ workspace, theme, state });
  // Functions, because `$` means something in a replacement.
  return page.html
    .replace("<head>", () => `<head>\n<meta http-equiv="Content-Security-Policy" content="${attribute(policy)}">`)
    .replace(/<link rel="icon"[^>]*>\s*/, "")
    .replace(/<link rel="stylesheet"[^>]*>/, () => `<style nonce="${nonce}">${page.style}</style>`)
    .replace(
      /<script src="panel\.js"><\/script>/,
      () => `<script type="application/json" id="host">${host}</script>\n<script nonce="${nonce}">${inScript(page.script)}</script>`,
    );
}

/** The document while there is no server to ask. */
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

/** A value as JSON that cannot end the script element. */
function literal(value: unknown): string {
  return JSON.stringify(value).replaceAll("<", String.raw`\u003c`);
}

/** A script that cannot end its element: outside of strings it has neither of these. */
function inScript(text: string): string {
  return text.replaceAll(/<(?=\/script|!--)/gi, String.raw`\x3c`);
}
