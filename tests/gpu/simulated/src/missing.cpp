// What is not simulated: the stubs of stubs.py end here.
#include <stdio.h>
#include <stdlib.h>

#include "export.h"
#include "process.h"

// Returns the library's code for "not supported". Also the mark of the simulation: a process that has this
// symbol runs on it, and says so in what it records.
EXPORT int simgpu_missing(const char* name, int code) {
  sim::log("%s is not simulated", name);
  static const bool shown = getenv("SIMGPU_SHOW_MISSING") != nullptr;
  if (shown) fprintf(stderr, "[simgpu] %s is not simulated\n", name);
  return code;
}
