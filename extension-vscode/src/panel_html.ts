// The document around the panel. The panel itself is a page of the server, in a frame.

export type Theme = "dark" | "light";

/** What the frame's document keeps, so that the panel comes back when the window is loaded anew. */
export interface PanelState {
  /** URI of the workspace folder. */
  root: string;
}

/** The message that tells the page another theme. */
export interface ThemeMessage {
  theme: Theme;
}

interface Frame {
  /** The panel's address as the window reaches it. */
  address: string;
  theme: Theme;
  /** Random, for the one script and the one style. */
  nonce: string;
  state: PanelState;
}

/** Whether the server answers at an address: a proxy in the browser's way has a name of its own, which it refuses. */
export function isLoopback(address: string): boolean {
  return ["127.0.0.1", "[::1]", "localhost"].includes(new URL(address).hostname);
}

/** The document with the panel in it. Nothing but that one page can be loaded by it. */
export function panelDocument({ address, theme, nonce, state }: Frame): string {
  const source = new URL(address);
  source.searchParams.set("theme", theme);
  source.searchParams.set("embedded", "1");
  const { origin } = source;
  const policy = `default-src 'none'; frame-src ${origin}; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${attribute(policy)}">
<title>Ridgeline</title>
<style nonce="${nonce}">
html, body { height: 100%; margin: 0; padding: 0; overflow: hidden; }
iframe { display: block; width: 100%; height: 100%; border: 0; }
</style>
</head>
<body>
<iframe id="panel" title="Ridgeline panel" src="${attribute(source.href)}"></iframe>
<script nonce="${nonce}">
acquireVsCodeApi().setState(${literal(state)});
const origin = ${literal(origin)};
addEventListener("message", ({ data, origin: from }) => {
  // The page in the frame may not speak to the editor, and the editor says one thing only.
  if (from === origin || (data?.theme !== "dark" && data?.theme !== "light")) return;
  document.getElementById("panel").contentWindow.postMessage({ theme: data.theme }, origin);
});
</script>
</body>
</html>`;
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

/** A value in a script: JSON that cannot end the script element. */
function literal(value: unknown): string {
  return JSON.stringify(value).replaceAll("<", String.raw`\u003c`);
}
