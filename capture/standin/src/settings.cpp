// Settings: the environment describes the machine, and a test in this process can override it.
#include <cstdlib>
#include <cstring>

#include "core.h"

namespace standin {

namespace {

std::map<std::string, std::string> &configured() {
  static auto *map = new std::map<std::string, std::string>;
  return *map;
}

Settings &mutable_settings() {
  static auto *s = new Settings;
  return *s;
}

// A size such as 80GiB, 500MB or 1048576. Units are powers of two, whatever they are called.
uint64_t size_of(const char *text, uint64_t otherwise) {
  if (!text || !*text) return otherwise;
  char *end;
  double value = strtod(text, &end);
  if (end == text || value < 0) return otherwise;
  while (*end == ' ') end++;
  switch (*end) {
    case 'T':
    case 't': value *= 1024; [[fallthrough]];
    case 'G':
    case 'g': value *= 1024; [[fallthrough]];
    case 'M':
    case 'm': value *= 1024; [[fallthrough]];
    case 'K':
    case 'k': value *= 1024;
  }
  return static_cast<uint64_t>(value);
}

int number_of(const char *text, int otherwise) { return text && *text ? atoi(text) : otherwise; }

int order_of(const char *text) {
  if (!text || !*text || !strcmp(text, "once")) return 1;
  if (!strcmp(text, "late")) return 0;
  return atoi(text);
}

}  // namespace

uint64_t setting_size(const char *name, uint64_t otherwise) { return size_of(setting(name), otherwise); }

const char *setting(const char *name) {
  auto &map = configured();
  auto found = map.find(name);
  if (found != map.end()) return found->second.c_str();
  return getenv(name);
}

void configure(const char *name, const char *value) { configured()[name] = value; }

void read_settings() {
  Settings s;
  auto text = [](const char *name) {
    const char *v = setting(name);
    return std::string(v ? v : "");
  };
  s.model = text("STANDIN_MODEL");
  s.devices = std::max(0, std::min(kMaxDevices, number_of(setting("STANDIN_DEVICES"), 1)));
  s.memory = size_of(setting("STANDIN_MEMORY"), 0);
  s.context = size_of(setting("STANDIN_CONTEXT"), 500 * kMiB);
  s.granule = std::max<uint64_t>(512, size_of(setting("STANDIN_GRANULE"), 2 * kMiB));
  s.hollow = size_of(setting("STANDIN_HOLLOW"), 0);
  s.order = order_of(setting("STANDIN_ORDER"));
  s.polls = number_of(setting("STANDIN_POLLS"), 64);
  s.timed_ops = text("STANDIN_CLOCK") == "program";
  s.virtual_clock = s.timed_ops || text("STANDIN_CLOCK") == "virtual";
  s.refuse_pageable = text("STANDIN_PAGEABLE") == "refuse";
  s.ecc = number_of(setting("STANDIN_ECC"), 0) != 0;
  s.compute_mode = number_of(setting("STANDIN_COMPUTE_MODE"), 0);
  s.driver_version = number_of(setting("STANDIN_DRIVER"), standin_cuda_version());
  s.board = text("STANDIN_BOARD");
  s.report = text("STANDIN_REPORT");
  std::string others = text("STANDIN_OTHERS");
  for (size_t at = 0; at < others.size();) {
    size_t comma = std::min(others.find(',', at), others.size());
    std::string one = others.substr(at, comma - at);
    size_t colon = one.find(':');
    int device = colon == std::string::npos ? 0 : atoi(one.c_str());
    if (device >= 0 && device < kMaxDevices)
      s.others[device] += size_of(one.c_str() + (colon == std::string::npos ? 0 : colon + 1), 0);
    at = comma + 1;
  }
  mutable_settings() = s;
}

const Settings &settings() {
  static std::once_flag once;
  std::call_once(once, read_settings);
  return mutable_settings();
}

int devices() { return settings().devices; }
int driver_version() { return settings().driver_version; }
bool ecc_errors() { return settings().ecc; }
uint64_t memory_total(int device) { return settings().memory ? settings().memory : card(device).memory; }

}  // namespace standin
