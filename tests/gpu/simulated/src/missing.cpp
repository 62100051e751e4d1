// Called by the generated stubs (stubs.py) of functions that are not simulated.
#include <stdio.h>
#include <stdlib.h>

#include "export.h"
#include "process.h"

// Returns the library's "not supported" code. The symbol also marks the simulator: a process that has it runs
// on the simulated device, and its recordings say so.
EXPORT int simgpu_missing(const char* name, int code) {
  sim::log("%s is not simulated", name);
  static const bool shown = getenv("SIMGPU_SHOW_MISSING") != nullptr;
  if (shown) fprintf(stderr, "[simgpu] %s is not simulated\n", name);
  return code;
}
