// NVRTC, the runtime compiler of CUDA C++. Here it compiles programs to kernels that do nothing.
//
// PyTorch writes some kernels (special functions, complex numbers) as text and compiles them on first use.
// Here kernels do nothing, so only their names matter: the "compiled" program is PTX text with an empty entry
// for each kernel that the text declares, and for each name that was asked for (name expressions, for
// templates). The real library is not called even if pip installed one: that would cost a second a kernel and
// make code for a GPU that does not exist.
//
// PyTorch keeps compiled kernels in the user's cache folder. Ours must never get there, since a run on a real
// GPU would use them: the cache is switched off for the whole process before anything can read the setting.
//
// libtorch finds NVRTC by its file name, on a path of its own that goes before LD_LIBRARY_PATH. A library
// that is already loaded under that name wins, so this one loads itself again under that name before libtorch
// looks.
//
// Source: the NVRTC documentation, "User Interface".
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "standin.h"

namespace standin {
namespace {

enum NvrtcResult {
  kNvrtcSuccess = 0,
  kNvrtcInvalidInput = 3,
  kNvrtcInvalidProgram = 4,
  kNvrtcNoLoweredNames = 10,
};

bool letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// A program. Only the names of kernels in its source matter.
struct Program {
  std::string source;
  std::vector<std::string> names;
  std::map<std::string, std::string> lowered;
  std::string ptx;

  // Makes a C identifier: characters that it may not have, as in a template's instance, become underscores.
  static std::string identifier(const std::string &name) {
    std::string out;
    for (char c : name) out += letter_or_digit(c) ? c : '_';
    return out.empty() ? "_" : out;
  }

  static bool in_word(char c) { return letter_or_digit(c) || c == '_'; }

  // The word before the parameters of each function that follows "__global__", launch bounds left out.
  std::vector<std::string> declared() const {
    std::vector<std::string> found;
    const std::string mark = "__global__", bounds = "__launch_bounds__";
    for (size_t at = source.find(mark); at != std::string::npos; at = source.find(mark, at)) {
      at += mark.size();
      size_t open = source.find('(', at);
      for (; open != std::string::npos; open = source.find('(', open + 1)) {
        size_t end = open;
        while (end > at && !in_word(source[end - 1])) end--;
        size_t begin = end;
        while (begin > at && in_word(source[begin - 1])) begin--;
        std::string word = source.substr(begin, end - begin);
        if (word.empty()) break;
        if (word == bounds) continue;
        found.push_back(word);
        break;
      }
    }
    return found;
  }

  void compile() {
    ptx = ".version 8.0\n.target sm_80\n.address_size 64\n";
    for (const std::string &name : declared()) ptx += ".visible .entry " + name + "()\n{\n ret;\n}\n";
    for (const std::string &name : names) {
      lowered[name] = identifier(name);
      ptx += ".visible .entry " + lowered[name] + "()\n{\n ret;\n}\n";
    }
  }
};

struct AtStart {
  AtStart() {
    setenv("USE_PYTORCH_KERNEL_CACHE", "0", 1);
    dlopen(("libnvrtc.so." + std::to_string(standin_cuda_version() / 1000)).c_str(), RTLD_NOW);
  }
} at_start;

NvrtcResult text_size(const Program *p, size_t *size) {
  if (!p) return kNvrtcInvalidProgram;
  if (!size) return kNvrtcInvalidInput;
  *size = p->ptx.size() + 1;
  return kNvrtcSuccess;
}

NvrtcResult text(const Program *p, char *out) {
  if (!p) return kNvrtcInvalidProgram;
  if (!out) return kNvrtcInvalidInput;
  memcpy(out, p->ptx.c_str(), p->ptx.size() + 1);
  return kNvrtcSuccess;
}

}  // namespace
}  // namespace standin

using standin::Program;

STANDIN_API int nvrtcVersion(int *major, int *minor) {
  if (!major || !minor) return standin::kNvrtcInvalidInput;
  *major = standin::driver_version() / 1000;
  *minor = standin::driver_version() % 1000 / 10;
  return standin::kNvrtcSuccess;
}

STANDIN_API const char *nvrtcGetErrorString(int result) {
  return result == standin::kNvrtcSuccess ? "NVRTC_SUCCESS" : "NVRTC_ERROR (stand-in)";
}

STANDIN_API int nvrtcCreateProgram(Program **program, const char *source, const char *, int,
                                   const char *const *, const char *const *) {
  if (!program) return standin::kNvrtcInvalidInput;
  *program = new Program;
  (*program)->source = source ? source : "";
  return standin::kNvrtcSuccess;
}

STANDIN_API int nvrtcDestroyProgram(Program **program) {
  if (!program || !*program) return standin::kNvrtcInvalidProgram;
  delete *program;
  *program = nullptr;
  return standin::kNvrtcSuccess;
}

STANDIN_API int nvrtcAddNameExpression(Program *program, const char *name) {
  if (!program) return standin::kNvrtcInvalidProgram;
  if (!name) return standin::kNvrtcInvalidInput;
  program->names.push_back(name);
  return standin::kNvrtcSuccess;
}

STANDIN_API int nvrtcCompileProgram(Program *program, int, const char *const *) {
  if (!program) return standin::kNvrtcInvalidProgram;
  program->compile();
  return standin::kNvrtcSuccess;
}

STANDIN_API int nvrtcGetLoweredName(Program *program, const char *name, const char **lowered) {
  if (!program) return standin::kNvrtcInvalidProgram;
  auto found = program->lowered.find(name ? name : "");
  if (found == program->lowered.end()) return standin::kNvrtcNoLoweredNames;
  *lowered = found->second.c_str();
  return standin::kNvrtcSuccess;
}

STANDIN_API int nvrtcGetPTXSize(Program *program, size_t *size) { return standin::text_size(program, size); }
STANDIN_API int nvrtcGetPTX(Program *program, char *out) { return standin::text(program, out); }
STANDIN_API int nvrtcGetCUBINSize(Program *program, size_t *size) {
  return standin::text_size(program, size);
}
STANDIN_API int nvrtcGetCUBIN(Program *program, char *out) { return standin::text(program, out); }

STANDIN_API int nvrtcGetProgramLogSize(Program *program, size_t *size) {
  if (!program) return standin::kNvrtcInvalidProgram;
  if (!size) return standin::kNvrtcInvalidInput;
  *size = 1;
  return standin::kNvrtcSuccess;
}

STANDIN_API int nvrtcGetProgramLog(Program *program, char *log) {
  if (!program) return standin::kNvrtcInvalidProgram;
  if (!log) return standin::kNvrtcInvalidInput;
  *log = 0;
  return standin::kNvrtcSuccess;
}
