// A reverse proxy that serves a server below a path. Other paths return 404.

import { createServer, request } from "node:http";

/** Starts a proxy to the server at `address`. Returns the listener. */
export async function proxyBelow(path, address) {
  const { hostname, port } = new URL(address);
  const asked = ({ url, method, headers }) => ({ hostname, port, method, headers, path: url.slice(path.length) || "/" });
  const isBelow = ({ url }) => url === path || url.startsWith(`${path}/`);
  const proxy = createServer((near, answer) => {
    if (!isBelow(near)) {
      answer.writeHead(404).end("Not found.");
      return;
    }
    const far = request(asked(near), (response) => {
      answer.writeHead(response.statusCode, response.headers);
      response.pipe(answer);
    });
    far.on("error", () => answer.destroy());
    near.on("error", () => far.destroy());
    near.pipe(far);
  });
  // WebSockets.
  proxy.on("upgrade", (near, socket, first) => {
    if (!isBelow(near)) {
      socket.destroy();
      return;
    }
    const far = request(asked(near));
    far.on("upgrade", (response, answered, more) => {
      const headers = Object.entries(response.headers).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.write(`HTTP/1.1 101 Switching Protocols\r\n${headers.join("")}\r\n`);
      socket.write(more);
      answered.write(first);
      // If one side disconnects, close the other.
      socket.on("error", () => answered.destroy()).on("close", () => answered.destroy());
      answered.on("error", () => socket.destroy()).on("close", () => socket.destroy());
      answered.pipe(socket).pipe(answered);
    });
    far.on("error", () => socket.destroy());
    far.end();
  });
  await new Promise((ready) => proxy.listen(0, "127.0.0.1", ready));
  return proxy;
}
