// One port of this machine that leads to whatever the server of a home listens on: what VS Code does where the editor
// and the server are on two machines.

import { readFileSync, readdirSync, readlinkSync } from "node:fs";
import { connect, createServer } from "node:net";

import { processes, ridgeline } from "./editor.mjs";

/** Starts it; gives the listener, whose port is the one. */
export async function forwardPanel(home) {
  const listener = createServer((near) => {
    // A window that was loaded anew has a server of its own, while that of before may not have ended yet.
    const servers = processes(home).filter(({ line }) => line.startsWith(ridgeline));
    servers.sort((one, other) => startedAt(other.pid) - startedAt(one.pid));
    const port = servers.flatMap(({ pid }) => listening(pid))[0];
    if (port === undefined) {
      near.destroy();
      return;
    }
    const far = connect(port, "127.0.0.1");
    // A side that breaks off takes the other with it.
    near.on("error", () => far.destroy()).on("close", () => far.destroy());
    far.on("error", () => near.destroy()).on("close", () => near.destroy());
    near.pipe(far).pipe(near);
  });
  await new Promise((ready) => listener.listen(0, "127.0.0.1", ready));
  return listener;
}

/** When a process was started, in ticks since the machine was; 0 where it has ended. */
function startedAt(pid) {
  try {
    // The second column is the program's name, which may hold anything (proc(5)).
    const behindName = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1);
    return Number(behindName.split(" ")[19]);
  } catch {
    return 0;
  }
}

/** Ports on which a process listens; none where it has ended. */
function listening(pid) {
  const sockets = new Set();
  try {
    for (const file of readdirSync(`/proc/${pid}/fd`)) {
      try {
        sockets.add(/^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${file}`))?.[1]);
      } catch {
        // It has just been closed.
      }
    }
  } catch {
    return [];
  }
  // Columns as in proc(5): local address, state (0A is LISTEN), inode.
  const rows = readFileSync("/proc/net/tcp", "utf8").split("\n").slice(1).map((row) => row.trim().split(/\s+/));
  const ours = rows.filter(([, , , state, , , , , , inode]) => state === "0A" && sockets.has(inode));
  return ours.map(([, address]) => Number.parseInt(address.split(":")[1], 16));
}
