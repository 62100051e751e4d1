/* A CUDA driver that answers as it is told: enough of libcuda.so.1 for the device query. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int number(const char *name, int otherwise) {
    const char *value = getenv(name);
    return value ? atoi(value) : otherwise;
}

int cuInit(unsigned int flags) {
    (void)flags;
    if (number("STUB_HANG", 0)) sleep(600);
    return number("STUB_INIT", 0);
}
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = number("STUB_COUNT", 1); return 0; }
int cuDeviceGet(int *device, int ordinal) {
    if (ordinal < 0 || ordinal > 1) return 101;
    *device = ordinal;
    return 0;
}
int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    strncpy(name, "NVIDIA H200", (size_t)length);
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 150754820096u; return 0; }
#ifndef WITHOUT_ATTRIBUTES
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 13: *value = 1980000; return 0;  /* clock, kHz */
    case 16: *value = 132; return 0;      /* multiprocessors */
    case 36: *value = 3201000; return 0;  /* memory clock, kHz */
    case 37: *value = 6144; return 0;     /* bus, bits */
    case 38: *value = 62914560; return 0; /* L2, bytes */
    case 75: *value = 9; return 0;        /* capability */
    case 76: *value = 0; return 0;
    default: return 1;
    }
}
#endif
