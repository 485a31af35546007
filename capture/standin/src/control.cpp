// Control: calls for Python and tests in the same process.
#include <cstring>

#include "core.h"

namespace standin {
std::string first_violation();
uint64_t leaked_by_contexts(std::string *words);
}  // namespace standin

using namespace standin;

namespace {
// Keeps a text until the same thread asks again.
const char *keep(std::string text) {
  thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();
}
}  // namespace

STANDIN_API int standin_enqueue(void *stream, void (*fn)(void *), void *arg) {
  if (suppressed()) return 0;
  enqueue(stream, [=] { fn(arg); }, "an op");
  return 0;
}
STANDIN_API void standin_suppress(int on) { suppress(on); }
STANDIN_API int standin_running(void) { return running(); }
STANDIN_API int standin_order(void) { return settings().order; }
STANDIN_API void standin_note_uncomputed(const char *op, const char *why) { note_uncomputed(op, why); }
STANDIN_API const char *standin_violation(void) { return keep(first_violation()); }
STANDIN_API void standin_violate(const char *what) { violate("%s", what); }
STANDIN_API void standin_missing(const char *function) { note_missing(function); }
STANDIN_API void standin_counts(uint64_t out[5]) {
  out[0] = launches;
  out[1] = copies;
  out[2] = copied_bytes;
  out[3] = allocations;
  out[4] = waits;
}
STANDIN_API int standin_is_device_memory(const void *p, size_t size) { return is_device_memory(p, size); }

// For tests in this process. A setting takes effect at the next reset, or with standin_apply, which keeps
// everything else.
STANDIN_API void standin_configure(const char *name, const char *value) { configure(name, value); }
STANDIN_API void standin_apply(void) {
  Lock lock(core());
  read_settings();
}
// Starts over with a new machine: nothing allocated or counted, no violations.
STANDIN_API void standin_reset(void) {
  Lock lock(core());
  graphs_reset(lock);
  modules_reset(lock);
  events_reset(lock);
  streams_reset(lock);
  clock_reset(lock);
  pools_reset(lock);
  virtual_reset(lock);
  memory_reset(lock);
  addresses_reset();
  contexts_reset(lock);
  board_reset();
  read_settings();
  faults_reset();
  books_reset();
  for (auto *n : {&launches, &copies, &copied_bytes, &allocations, &waits}) *n = 0;
}
STANDIN_API void standin_fail(const char *function, long n, int answer) { inject(function, n, answer); }
STANDIN_API uint64_t standin_calls(const char *function) { return calls_of(function); }
STANDIN_API uint64_t standin_held(void) { return held(); }
STANDIN_API uint64_t standin_peak(void) { return held_peak(); }
STANDIN_API uint64_t standin_leaked(void) {
  std::string words;
  return leaked_by_contexts(&words);
}
STANDIN_API const char *standin_leaks(void) {
  std::string words;
  leaked_by_contexts(&words);
  return keep(words);
}
STANDIN_API int standin_contexts(void) {
  Lock lock(core());
  return contexts_left(lock);
}
