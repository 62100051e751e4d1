// What a module's image says of its kernels: ELF sections of a cubin, entries of PTX text.
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memory>
#include <set>

#include "device_model.h"
#include "functions.h"
#include "process.h"

namespace sim {

namespace {

// "CUDA Binary Utilities" does not document it, but cuobjdump shows it: registers stand in the top byte of
// sh_info of .text.KERNEL, declared shared memory is the size of .nv.shared.KERNEL, and .nv.info.KERNEL holds
// attributes.
constexpr uint8_t kAttributeMaxThreads = 0x05, kAttributeRequiredThreads = 0x10;
constexpr uint8_t kFormatSized = 0x04;

int threads_of_attributes(const unsigned char* at, const unsigned char* end) {
  while (at + 4 <= end) {
    uint8_t format = at[0], attribute = at[1];
    uint16_t size;
    memcpy(&size, at + 2, 2);
    at += 4;
    if (format != kFormatSized) continue;
    if (at + size > end) break;
    if ((attribute == kAttributeMaxThreads || attribute == kAttributeRequiredThreads) && size >= 12) {
      uint32_t shape[3];
      memcpy(shape, at, sizeof shape);
      return (int)(shape[0] * shape[1] * shape[2]);
    }
    at += size;
  }
  return 1024;
}

std::vector<Function> functions_of_elf(const char* image) {
  std::vector<Function> found;
  auto* header = (const Elf64_Ehdr*)image;
  auto* sections = (const Elf64_Shdr*)(image + header->e_shoff);
  if (!header->e_shoff || header->e_shstrndx >= header->e_shnum) return found;
  const char* names = image + sections[header->e_shstrndx].sh_offset;
  auto find = [&](const std::string& name) -> const Elf64_Shdr* {
    for (int i = 0; i < header->e_shnum; i++)
      if (name == names + sections[i].sh_name) return &sections[i];
    return nullptr;
  };
  for (int i = 0; i < header->e_shnum; i++) {
    std::string name = names + sections[i].sh_name;
    if (name.rfind(".text.", 0) != 0) continue;
    std::string kernel = name.substr(strlen(".text."));
    const Elf64_Shdr* info = find(".nv.info." + kernel);
    if (!info) continue;  // a device function
    Function function{intern(kernel)};
    function.registers = (int)(sections[i].sh_info >> 24);
    if (const Elf64_Shdr* shared = find(".nv.shared." + kernel))
      function.static_shared = (int)shared->sh_size;
    auto* attributes = (const unsigned char*)image + info->sh_offset;
    function.max_threads = threads_of_attributes(attributes, attributes + info->sh_size);
    found.push_back(function);
  }
  return found;
}

// Compiles PTX as the driver would, so that registers are the real ones.
std::vector<Function> compile(const char* ptx) {
  const char* ptxas = getenv("SIMGPU_PTXAS");
  if (!ptxas || access(ptxas, X_OK) != 0) return {};
  char source[] = "/tmp/simgpu.XXXXXX";
  int fd = mkstemp(source);
  if (fd < 0) return {};
  size_t length = strlen(ptx);
  bool written = write(fd, ptx, length) == (ssize_t)length;
  close(fd);
  std::string cubin = std::string(source) + ".cubin";
  std::string command = std::string("env -u LD_PRELOAD '") + ptxas + "' -arch=sm_" +
                        std::to_string(model().major) + std::to_string(model().minor) + " -o " + cubin + " " +
                        source + " >/dev/null 2>&1";
  std::vector<Function> found;
  if (written && system(command.c_str()) == 0) {
    if (FILE* file = fopen(cubin.c_str(), "rb")) {
      std::vector<char> bytes;
      char block[65536];
      for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
        bytes.insert(bytes.end(), block, block + n);
      fclose(file);
      if (bytes.size() > sizeof(Elf64_Ehdr)) found = functions_of_elf(bytes.data());
    }
  }
  unlink(source);
  unlink(cubin.c_str());
  return found;
}

std::vector<Function> functions_of_ptx(const char* ptx) {
  std::vector<Function> found = compile(ptx);
  if (!found.empty()) return found;
  for (const char* at = ptx; (at = strstr(at, ".entry"));) {
    at += strlen(".entry");
    while (*at == ' ' || *at == '\t' || *at == '\n') at++;
    size_t length = strcspn(at, " \t\n(");
    found.push_back({intern(std::string(at, length))});
  }
  return found;
}

}  // namespace

std::vector<Function> functions_of_image(const void* image) {
  auto* text = (const char*)image;
  if (!text) return {};
  if (memcmp(text, ELFMAG, SELFMAG) == 0) return functions_of_elf(text);
  // PTX begins with comments or .version; a fat binary with its own magic number.
  if (*text == '/' || *text == '.' || *text == '\n' || *text == ' ') return functions_of_ptx(text);
  return {};
}

}  // namespace sim
