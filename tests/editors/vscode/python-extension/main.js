// The part of the Python extension's API that Ridgeline uses (`environments` of @vscode/python-extension), with a
// single interpreter, whose path is in the file next to this extension's folder.

const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const vscode = require("vscode");

exports.activate = () => {
  const path = readFileSync(join(__dirname, "..", "..", "interpreter"), "utf8").trim();
  const changed = new vscode.EventEmitter();
  return {
    environments: {
      getActiveEnvironmentPath: () => ({ id: path, path }),
      onDidChangeActiveEnvironmentPath: changed.event,
      resolveEnvironment: async (environment) => ({
        id: environment.id,
        path: environment.path,
        executable: { uri: vscode.Uri.file(environment.path) },
      }),
    },
  };
};
