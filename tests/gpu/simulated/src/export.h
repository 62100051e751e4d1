// How a function of a simulated library is exported to the programs that link against the real one.
#pragma once

#define EXPORT extern "C" __attribute__((visibility("default")))
