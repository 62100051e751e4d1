// Exports a function of a simulated library to programs that link against the real one.
#pragma once

#define EXPORT extern "C" __attribute__((visibility("default")))
