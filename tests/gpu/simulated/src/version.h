// Versions that the simulation reports.
#pragma once

#include <cuda.h>

namespace sim {

constexpr int kDriverVersion = CUDA_VERSION;         // the oldest driver that supports the headers
constexpr const char* kDriverRelease = "595.00.00";  // as nvidia-smi shows it

}  // namespace sim
