// The device files that the real driver has: seen by stat, and held open after the driver's start.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include "cost_model.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"
static bool ours(const char* p) {
  return p && (!strcmp(p, "/dev/nvidiactl") || !strcmp(p, "/dev/nvidia0") || !strcmp(p, "/dev/nvidia-uvm"));
}
#define NEXT(f) static auto next = (decltype(&f))dlsym(RTLD_NEXT, #f)
EXPORT int stat(const char* p, struct stat* s) noexcept {
  NEXT(stat);
  return next(ours(p) ? "/dev/null" : p, s);
}
EXPORT int stat64(const char* p, struct stat64* s) noexcept {
  NEXT(stat64);
  return next(ours(p) ? "/dev/null" : p, s);
}
EXPORT int fstatat(int d, const char* p, struct stat* s, int f) noexcept {
  NEXT(fstatat);
  return next(d, ours(p) ? "/dev/null" : p, s, f);
}
EXPORT int fstatat64(int d, const char* p, struct stat64* s, int f) noexcept {
  NEXT(fstatat64);
  return next(d, ours(p) ? "/dev/null" : p, s, f);
}
EXPORT int access(const char* p, int m) noexcept {
  NEXT(access);
  return next(ours(p) ? "/dev/null" : p, m);
}
EXPORT int statx(int d, const char* p, int f, unsigned m, struct statx* s) noexcept {
  NEXT(statx);
  return next(d, ours(p) ? "/dev/null" : p, f, m, s);
}
static int held = -1;
static pid_t holder;
namespace sim {
void hold_device_files() {
  held = fcntl(open("/dev/null", O_RDWR | O_CLOEXEC), F_DUPFD_CLOEXEC, 30);
  holder = getpid();
}
}  // namespace sim
static ssize_t device_of(const char* p, char* b, size_t n) {
  if (held < 0 || !p) return -1;
  char a[64];
  snprintf(a, sizeof a, "/proc/self/fd/%d", held);
  if (strcmp(p, a)) return -1;
  size_t k = strlen("/dev/nvidia-uvm");
  if (k > n) k = n;
  memcpy(b, "/dev/nvidia-uvm", k);
  return k;
}
EXPORT ssize_t readlink(const char* p, char* b, size_t n) noexcept {
  NEXT(readlink);
  ssize_t k = device_of(p, b, n);
  return k >= 0 ? k : next(p, b, n);
}
EXPORT ssize_t readlinkat(int d, const char* p, char* b, size_t n) noexcept {
  NEXT(readlinkat);
  ssize_t k = device_of(p, b, n);
  return k >= 0 ? k : next(d, p, b, n);
}
