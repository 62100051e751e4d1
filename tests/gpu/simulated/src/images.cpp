// Reads the kernels of a module image: ELF sections of a cubin, entries of PTX text.
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "device_model.h"
#include "functions.h"
#include "process.h"

namespace sim {

namespace {

// The format is undocumented in "CUDA Binary Utilities", but cuobjdump shows it: the size of
// .nv.shared.KERNEL is the declared shared memory, .nv.info holds attributes of all kernels (registers, by
// symbol), and .nv.info.KERNEL those of one kernel.
enum Attribute : uint8_t { kMaxThreads = 0x05, kRequiredThreads = 0x10, kRegisterCount = 0x2f };
constexpr uint8_t kSizedFormat = 0x04;

// Calls back with each attribute that has a payload, as words.
template <class Each>
void for_each_attribute(const char* image, const Elf64_Shdr& section, Each each) {
  auto* at = (const unsigned char*)image + section.sh_offset;
  auto* end = at + section.sh_size;
  while (at + 4 <= end) {
    uint8_t format = at[0], attribute = at[1];
    uint16_t size;
    memcpy(&size, at + 2, 2);
    at += 4;
    if (format != kSizedFormat) continue;
    if (at + size > end) return;
    std::vector<uint32_t> words(size / 4);
    if (!words.empty()) memcpy(words.data(), at, words.size() * 4);
    each(attribute, words);
    at += size;
  }
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
  std::map<std::string, int> registers;
  const Elf64_Shdr *symbols = find(".symtab"), *common = find(".nv.info");
  if (symbols && common && symbols->sh_link < header->e_shnum) {
    auto* entries = (const Elf64_Sym*)(image + symbols->sh_offset);
    const char* symbol_names = image + sections[symbols->sh_link].sh_offset;
    for_each_attribute(image, *common, [&](uint8_t attribute, const std::vector<uint32_t>& words) {
      if (attribute == kRegisterCount && words.size() == 2 && words[0] < symbols->sh_size / sizeof *entries)
        registers[symbol_names + entries[words[0]].st_name] = (int)words[1];
    });
  }
  for (int i = 0; i < header->e_shnum; i++) {
    std::string name = names + sections[i].sh_name;
    if (name.rfind(".text.", 0) != 0) continue;
    std::string kernel = name.substr(strlen(".text."));
    const Elf64_Shdr* info = find(".nv.info." + kernel);
    if (!info) continue;  // a device function, not a kernel
    Function function{intern(kernel)};
    if (registers.count(kernel)) function.registers = registers[kernel];
    if (const Elf64_Shdr* shared = find(".nv.shared." + kernel)) {
      function.static_shared = (int)shared->sh_size;
      // From sm_90 on, the section also includes the driver's reserved shared memory, which the kernel did
      // not declare.
      if (find(".nv.shared.reserved.0")) function.static_shared -= std::min(1024, function.static_shared);
    }
    for_each_attribute(image, *info, [&](uint8_t attribute, const std::vector<uint32_t>& words) {
      if ((attribute == kMaxThreads || attribute == kRequiredThreads) && words.size() >= 3)
        function.max_threads = (int)(words[0] * words[1] * words[2]);
    });
    found.push_back(function);
  }
  return found;
}

// Compiles PTX as the driver does, to get real register counts.
std::vector<Function> compile(const char* ptx) {
  const char* variable = getenv("SIMGPU_PTXAS");
  if (!variable) return {};
  // Triton ships a separate ptxas for Blackwell.
  std::string ptxas = model().major >= 10 ? std::string(variable) + "-blackwell" : variable;
  if (access(ptxas.c_str(), X_OK) != 0) return {};
  char source[] = "/tmp/simgpu.XXXXXX";
  int fd = mkstemp(source);
  if (fd < 0) return {};
  size_t length = strlen(ptx);
  bool written = write(fd, ptx, length) == (ssize_t)length;
  close(fd);
  std::string cubin = std::string(source) + ".cubin";
  std::string command = "env -u LD_PRELOAD '" + ptxas + "' -arch=sm_" + std::to_string(model().major) +
                        std::to_string(model().minor) + " -o " + cubin + " " + source + " >/dev/null 2>&1";
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
  // PTX starts with a comment or .version, a fat binary with its magic number.
  if (*text == '/' || *text == '.' || *text == '\n' || *text == ' ') return functions_of_ptx(text);
  return {};
}

}  // namespace sim
