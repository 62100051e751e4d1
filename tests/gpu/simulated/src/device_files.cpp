// The device files of the real driver: visible to stat, and held open once the driver is initialized.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "export.h"
#include "process.h"

// Jetson and some containers lack these files (SIMGPU_NO_DEVICE_FILES).
static bool has_device_files() {
  const char* without = getenv("SIMGPU_NO_DEVICE_FILES");
  return !without || !*without;
}

static bool is_device_file(const char* path) {
  if (!path || strncmp(path, "/dev/nvidia", strlen("/dev/nvidia")) != 0 || !has_device_files()) return false;
  const char* rest = path + strlen("/dev/nvidia");
  if (!strcmp(rest, "ctl") || !strcmp(rest, "-uvm")) return true;
  char* end;
  long index = strtol(rest, &end, 10);
  return end != rest && *end == 0 && index >= 0 && index < sim::physical_count();
}

static const char* real_path(const char* path) {
  return is_device_file(path) ? "/dev/null" : path;
}

#define NEXT(function) static auto next = (decltype(&function))dlsym(RTLD_NEXT, #function)

EXPORT int stat(const char* path, struct stat* out) noexcept {
  NEXT(stat);
  return next(real_path(path), out);
}
EXPORT int stat64(const char* path, struct stat64* out) noexcept {
  NEXT(stat64);
  return next(real_path(path), out);
}
EXPORT int fstatat(int folder, const char* path, struct stat* out, int flags) noexcept {
  NEXT(fstatat);
  return next(folder, real_path(path), out, flags);
}
EXPORT int fstatat64(int folder, const char* path, struct stat64* out, int flags) noexcept {
  NEXT(fstatat64);
  return next(folder, real_path(path), out, flags);
}
EXPORT int access(const char* path, int mode) noexcept {
  NEXT(access);
  return next(real_path(path), mode);
}
EXPORT int statx(int folder, const char* path, int flags, unsigned mask, struct statx* out) noexcept {
  NEXT(statx);
  return next(folder, real_path(path), flags, mask, out);
}

// A process that holds a device file open cannot easily be checkpointed or forked, so programs look for it in
// /proc/self/fd.
static int open_descriptor = -1;

void sim::hold_device_files() {
  if (!has_device_files()) return;
  int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  open_descriptor = fcntl(fd, F_DUPFD_CLOEXEC, 30);
  close(fd);
}

static ssize_t read_open_file_link(const char* path, char* out, size_t size) {
  if (open_descriptor < 0 || !path) return -1;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", open_descriptor);
  if (strcmp(path, link) != 0) return -1;
  static const char target[] = "/dev/nvidia-uvm";
  size_t length = sizeof target - 1 < size ? sizeof target - 1 : size;
  memcpy(out, target, length);
  return (ssize_t)length;
}

EXPORT ssize_t readlink(const char* path, char* out, size_t size) noexcept {
  NEXT(readlink);
  ssize_t length = read_open_file_link(path, out, size);
  return length >= 0 ? length : next(path, out, size);
}
EXPORT ssize_t readlinkat(int folder, const char* path, char* out, size_t size) noexcept {
  NEXT(readlinkat);
  ssize_t length = read_open_file_link(path, out, size);
  return length >= 0 ? length : next(folder, path, out, size);
}
