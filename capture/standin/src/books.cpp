// The books: what the program did wrong, what it left behind, and the report that a process writes when it
// ends.
//
// Anything wrong is a violation: it is printed on standard error and listed in the report. Whatever is left
// when a context is destroyed or the process ends is a leak, listed with the library that made it. PyTorch
// keeps its streams, events and cached memory until the process ends, on purpose, so what its own libraries
// made is listed apart, as kept. The rule goes by library, so leaks of gmemtop's or the user's own libraries
// are never hidden.
//
// A process that ends by a signal or _exit runs no destructors, and neither does a Go program. So a report is
// also written when a context that the program made is destroyed.
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core.h"

namespace standin {

namespace {

constexpr size_t kMost = 100;

struct Uncomputed {
  std::string why;
  uint64_t count = 0;
};

struct Books {
  std::mutex mutex;
  std::vector<std::string> violations;
  std::map<std::string, uint64_t> missing;
  std::map<std::string, Uncomputed> uncomputed;
  std::set<std::string> inferred;
  std::map<std::string, uint64_t> counters;
  Leaks context_leaks;  // of contexts that were destroyed
};

Books &books() {
  static auto *b = new Books;
  return *b;
}

// Whether this is one of PyTorch's libraries, which keep things until the end by design.
bool kept_by_torch(const std::string &library) {
  return library.rfind("libtorch", 0) == 0 || library.rfind("libc10", 0) == 0;
}

std::string quoted(const std::string &s) {
  std::string out = "\"";
  for (unsigned char c : s) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (c < 0x20) {
      char text[8];
      snprintf(text, sizeof text, "\\u%04x", c);
      out += text;
    } else
      out += c;
  }
  return out + "\"";
}

template <typename T, typename F>
void list(std::ostream &o, const char *key, const T &all, F write) {
  o << ",\n  " << quoted(key) << ": [";
  const char *comma = "";
  for (auto &x : all) {
    o << comma << "\n    ";
    write(x);
    comma = ",";
  }
  o << (*comma ? "\n  ]" : "]");
}

std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(in)), {}), out = "[";
  for (size_t at = 0; at < all.size();) {
    size_t end = std::min(all.find('\0', at), all.size());
    out += (out.size() > 1 ? ", " : "") + quoted(all.substr(at, end - at));
    at = end + 1;
  }
  return out + "]";
}

void write_leaks(std::ostream &o, const char *key, const Leaks &leaks, bool by_design) {
  std::vector<Leak> some;
  for (auto &l : leaks)
    if (l.second.by_design == by_design) some.push_back(l.second);
  list(o, key, some, [&](const Leak &l) {
    o << "{\"kind\": " << quoted(l.kind) << ", \"library\": " << quoted(l.owner) << ", \"count\": " << l.count
      << ", \"bytes\": " << l.bytes << "}";
  });
}

void write_report(const std::string &folder, Books &b, const Leaks &leaks) {
  std::ostringstream o;
  o << "{\n  \"pid\": " << getpid() << ",\n  \"command\": " << command_line()
    << ",\n  \"order\": " << settings().order;
  list(o, "violations", b.violations, [&](const std::string &v) { o << quoted(v); });
  write_leaks(o, "leaks", leaks, false);
  write_leaks(o, "kept", leaks, true);
  list(o, "missing", b.missing,
       [&](auto &m) { o << "{\"function\": " << quoted(m.first) << ", \"calls\": " << m.second << "}"; });
  list(o, "uncomputed", b.uncomputed, [&](auto &u) {
    o << "{\"op\": " << quoted(u.first) << ", \"why\": " << quoted(u.second.why)
      << ", \"count\": " << u.second.count << "}";
  });
  list(o, "inferred", b.inferred, [&](const std::string &i) { o << quoted(i); });
  std::vector<int> all;
  for (int d = 0; d < devices(); d++) all.push_back(d);
  list(o, "devices", all, [&](int d) {
    o << "{\"device\": " << d << ", \"held\": " << board_mine(d) << ", \"peak\": " << board_peak(d) << "}";
  });
  o << ",\n  \"counts\": {\"launches\": " << launches << ", \"copies\": " << copies
    << ", \"copied_bytes\": " << copied_bytes << ", \"allocations\": " << allocations
    << ", \"waits\": " << waits;
  for (auto &c : b.counters) o << ", " << quoted(c.first) << ": " << c.second;
  o << "},\n  \"calls\": {";
  const char *comma = "";
  for (auto &c : all_calls()) {
    o << comma << "\n    " << quoted(c.first) << ": " << c.second;
    comma = ",";
  }
  o << "\n  }\n}\n";
  // Written under another name first, so that nobody reads half a report.
  std::string path = folder + "/" + std::to_string(getpid()) + ".json", partial = path + ".partial";
  {
    std::ofstream out(partial, std::ios::binary);
    out << o.str();
    if (!out.flush()) {
      fprintf(stderr, "stand-in GPU: cannot write a report to %s: does the folder of STANDIN_REPORT exist?\n",
              folder.c_str());
      return;
    }
  }
  if (rename(partial.c_str(), path.c_str())) perror("stand-in GPU: report");
}

std::string in_words(const Leaks &leaks) {
  std::string out;
  for (auto &l : leaks) {
    if (l.second.by_design) continue;
    if (!out.empty()) out += ", ";
    out += std::to_string(l.second.count) + " x " + l.second.kind;
    if (l.second.bytes) out += " of " + std::to_string(l.second.bytes) + " bytes in all";
    if (!l.second.owner.empty()) out += " (" + l.second.owner + ")";
  }
  return out;
}

Leaks all_leaks(Lock &lock) {
  Leaks leaks = books().context_leaks;
  memory_leaks(nullptr, &leaks, lock);
  pool_leaks(nullptr, &leaks, lock);
  virtual_leaks(nullptr, &leaks, lock);
  stream_leaks(nullptr, &leaks, lock);
  event_leaks(nullptr, &leaks, lock);
  module_leaks(nullptr, &leaks, lock);
  graph_leaks(&leaks, lock);
  if (int n = contexts_left(lock))
    leaks[{"context", ""}] = {"context", "", static_cast<uint64_t>(n), 0, false};
  return leaks;
}

// The process that loaded the library. A forked child inherits its books and writes no report.
const int loaded_by = getpid();

// A test in this process asks for violations itself and wants nothing printed.
bool reset_by_test = false;

__attribute__((destructor)) void end_of_process() {
  Books &b = books();
  if (loaded_by != getpid()) return;  // a forked child that never used a device
  Lock lock(core(), std::try_to_lock);
  if (!lock.owns_lock()) return;  // a thread was killed during a call
  bool used = !all_calls().empty();
  if (used && !reset_by_test) {
    Leaks leaks = all_leaks(lock);
    std::string words = in_words(leaks);
    if (!words.empty()) fprintf(stderr, "stand-in GPU: left at the end: %s\n", words.c_str());
    report_now(lock);
  }
  lock.unlock();
  board_reset();
}

}  // namespace

void report_now(Lock &lock) {
  if (!settings().report.empty() && !reset_by_test) write_report(settings().report, books(), all_leaks(lock));
}

void violate(const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  Books &b = books();
  std::lock_guard<std::mutex> hold(b.mutex);
  if (b.violations.size() >= kMost) return;
  b.violations.push_back(text);
  if (!reset_by_test) fprintf(stderr, "stand-in GPU: %s\n", text);
}

void note_missing(const char *function) {
  Books &b = books();
  std::lock_guard<std::mutex> hold(b.mutex);
  b.missing[function]++;
}

void note_uncomputed(const std::string &op, const std::string &why) {
  Books &b = books();
  std::lock_guard<std::mutex> hold(b.mutex);
  auto &u = b.uncomputed[op];
  u.why = why;
  u.count++;
}

void note_inferred(const std::string &what) {
  Books &b = books();
  std::lock_guard<std::mutex> hold(b.mutex);
  b.inferred.insert(what);
}

void count(const char *what, uint64_t by) {
  Books &b = books();
  std::lock_guard<std::mutex> hold(b.mutex);
  b.counters[what] += by;
}

void add_leak(Leaks *leaks, const char *kind, const std::string &owner, uint64_t bytes) {
  Leak &l = (*leaks)[{kind, owner}];
  l.kind = kind;
  l.owner = owner;
  l.by_design = kept_by_torch(owner);
  l.count++;
  l.bytes += bytes;
}

void note_context_leaks(const Leaks &leaks) {
  std::string words = in_words(leaks);
  if (!words.empty() && !reset_by_test)
    fprintf(stderr, "stand-in GPU: left in a context that was destroyed: %s\n", words.c_str());
  for (auto &l : leaks) {
    Leak &all = books().context_leaks[l.first];
    uint64_t count = all.count + l.second.count, bytes = all.bytes + l.second.bytes;
    all = l.second;
    all.count = count;
    all.bytes = bytes;
  }
}

void books_reset() {
  Books &b = books();
  std::lock_guard<std::mutex> hold(b.mutex);
  b.violations.clear();
  b.missing.clear();
  b.uncomputed.clear();
  b.inferred.clear();
  b.counters.clear();
  b.context_leaks.clear();
  reset_by_test = true;
}

std::string first_violation() {
  Books &b = books();
  std::lock_guard<std::mutex> hold(b.mutex);
  return b.violations.empty() ? "" : b.violations[0];
}

// What contexts still held when they were destroyed.
uint64_t leaked_by_contexts(std::string *words) {
  Books &b = books();
  std::lock_guard<std::mutex> hold(b.mutex);
  uint64_t n = 0;
  for (auto &l : b.context_leaks) n += l.second.count;
  *words = in_words(b.context_leaks);
  return n;
}

}  // namespace standin
