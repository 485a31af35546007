// The work behind NCCL's calls: what a rank does when its stream gets to them.
//
// A collective is a number of rounds: each rank shows up to half a slot of its data, then computes its own
// result from what all have shown. If each receiver gets different data (reduce-scatter, all-to-all,
// scatter), they share the slot in equal parts. A rank copies what it shows before it writes what it
// computes, so buffers may be the same or overlap as NCCL's in-place rules allow.
//
// Sends and receives of one group go on together, as far as their pipes let them; messages in one pipe stay
// in order. A send is done when its bytes are in the pipe (1 MiB). NCCL has such buffers too, so a program
// that relies on small sends does so by mistake on either.
#include "nccl.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "core.h"

namespace standin {
namespace nccl {

Shape shape(Kind k) {
  switch (k) {
    case Kind::kAllReduce: return {false, false, false, false, true};
    case Kind::kReduce: return {false, true, false, false, true};
    case Kind::kBroadcast: return {true, false, false, false, false};
    case Kind::kAllGather: return {false, false, false, true, false};
    case Kind::kReduceScatter: return {false, false, true, false, true};
    case Kind::kAllToAll: return {false, false, true, true, false};
    case Kind::kGather: return {false, true, false, true, false};
    case Kind::kScatter: return {true, false, true, false, false};
    default: return {};
  }
}

void set_error(Communicator &c, Status status, const std::string &text) {
  int ok = kOk;
  if (!c.status.compare_exchange_strong(ok, status)) return;
  std::lock_guard<std::mutex> l(c.mutex);
  c.error = text;
}

namespace {

// ---- Collectives ----

bool same(const Deed &a, const Deed &b) {
  return !strcmp(a.function, b.function) && a.type == b.type && a.operation == b.operation && a.root == b.root && a.count == b.count;
}

std::string describe(const Deed &d) {
  static const char *const operations[] = {"sum", "product", "maximum", "minimum", "average", "sum with a factor"};
  char text[160];
  snprintf(text, sizeof text, "%s of %llu × %s", d.function, static_cast<unsigned long long>(d.count), type_name(d.type));
  std::string s = text;
  if (d.operation >= 0) s += std::string(", ") + operations[d.operation];
  if (d.root >= 0) s += ", root " + std::to_string(d.root);
  return s;
}

// check compares what all ranks are about to do. The ranks that differ from rank 0 report it.
Status check(Team &team, std::string *error) {
  const Deed &first = team.deed_of(kStream, 0);
  for (int r = 1; r < team.ranks(); r++) {
    const Deed &other = team.deed_of(kStream, r);
    if (same(first, other)) continue;
    *error = "the ranks of a communicator do different things: rank 0 " + describe(first) + ", rank " + std::to_string(r) + " " +
             describe(other);
    if (r == team.rank()) violate("%s", error->c_str());
    return kInvalidUsage;
  }
  return kOk;
}

Status collective(Team &team, const Call &c, std::string *error) {
  Shape s = shape(c.kind);
  int n = team.ranks(), me = team.rank(), parts = s.part_for_each_rank ? n : 1;
  bool sends = !s.only_root_sends || me == c.root, receives = !s.only_root_receives || me == c.root;
  size_t element = type_size(c.type), chunk = team.payload_bytes(kStream) / size_t(parts) / element;
  double factor = 1;
  if (c.operation == kScaledSum) factor = c.scaled.pointer ? load(c.type, c.scaled.pointer) : c.scaled.factor;
  size_t at = 0;
  if (hollow(c.count * element)) sends = receives = false, chunk = c.count;
  do {
    size_t now = std::min(chunk, c.count - at), bytes = now * element;
    Deed &deed = team.deed(kStream);
    snprintf(deed.function, sizeof deed.function, "%s", c.function);
    deed.type = c.type, deed.operation = c.operation, deed.root = c.root, deed.count = c.count, deed.factor = factor;
    if (sends)
      for (int p = 0; p < parts; p++)
        memcpy(team.payload(kStream) + size_t(p) * chunk * element,
               static_cast<const char *>(c.send) + (size_t(p) * c.count + at) * element, bytes);
    if (Status e = team.meet(kStream)) {
      *error = team.error();
      return e;
    }
    if (at == 0)
      if (Status e = check(team, error)) return e;
    char *out = static_cast<char *>(c.receive);
    auto shown = [&](int r) { return team.payload_of(kStream, r) + (s.part_for_each_rank ? size_t(me) * chunk * element : 0); };
    if (receives && s.reduces) {
      std::vector<const void *> inputs;
      std::vector<double> factors;
      for (int r = 0; r < n; r++) inputs.push_back(shown(r)), factors.push_back(team.deed_of(kStream, r).factor);
      reduce(c.type, Operation(c.operation), inputs, factors, out + at * element, now);
    } else if (receives && s.part_of_each_rank) {
      for (int r = 0; r < n; r++) memcpy(out + (size_t(r) * c.count + at) * element, shown(r), bytes);
    } else if (receives) {
      memcpy(out + at * element, shown(c.root), bytes);
    }
    at += now;
  } while (at < c.count);
  return kOk;
}

// ---- Sends and receives ----

// What a pipe carries before the bytes of a message.
struct Head {
  uint64_t bytes;
  int64_t type;
};

struct Transfer {
  const Call *call;
  size_t bytes;        // how many this rank expects
  size_t head = 0;     // how much of the head has gone through
  size_t done = 0;     // how much of the message has gone through
  size_t length = 0;   // the message's
  Head header = {0, 0};
  bool finished() const { return head == sizeof header && done == length; }
};

// advance moves what can be moved now and reports whether it moved anything.
bool advance(Team &team, Transfer &t, std::string *error) {
  int peer = t.call->root;
  bool sends = t.call->kind == Kind::kSend, moved = false;
  char *head = reinterpret_cast<char *>(&t.header);
  if (t.head < sizeof t.header) {
    size_t left = sizeof t.header - t.head, n;
    n = sends ? team.put(peer, head + t.head, left) : team.take(peer, head + t.head, left);
    t.head += n, moved = n > 0;
    if (t.head < sizeof t.header) return moved;
    t.length = size_t(t.header.bytes);
    if (!sends && t.header.bytes != t.bytes) {
      char text[256];
      snprintf(text, sizeof text, "rank %d receives %zu bytes (%s) from rank %d, which sends %llu (%s)", team.rank(), t.bytes,
               type_name(t.call->type), peer, static_cast<unsigned long long>(t.header.bytes), type_name(int(t.header.type)));
      *error = text;
      violate("ncclRecv: %s", text);
    }
  }
  while (t.done < t.length) {
    size_t n;
    char spill[4096];  // takes the part of a message that does not fit into the receiver's buffer
    if (sends) {
      n = team.put(peer, static_cast<const char *>(t.call->send) + t.done, t.length - t.done);
    } else if (t.done < t.bytes) {
      n = team.take(peer, static_cast<char *>(t.call->receive) + t.done, std::min(t.length, t.bytes) - t.done);
    } else {
      n = team.take(peer, spill, std::min(sizeof spill, t.length - t.done));
    }
    if (!n) break;
    t.done += n, moved = true;
  }
  return moved;
}

Status transfer(Team &team, const std::vector<const Call *> &calls, std::string *error) {
  std::vector<Transfer> transfers;
  for (const Call *c : calls) {
    Transfer t;
    t.call = c;
    t.bytes = c->count * type_size(c->type);
    if (c->kind == Kind::kSend) t.header = {t.bytes, c->type};
    transfers.push_back(t);
  }
  double since = 0;
  for (size_t turn = 0;; turn++) {
    uint32_t tick = team.clock();
    bool moved = false;
    std::vector<int> waits_for;
    std::map<std::pair<int, bool>, bool> taken;  // messages of one pipe go in order
    for (Transfer &t : transfers) {
      if (t.finished()) continue;
      bool &busy = taken[{t.call->root, t.call->kind == Kind::kSend}];
      if (busy) continue;
      moved |= advance(team, t, error);
      if (!t.finished()) busy = true, waits_for.push_back(t.call->root);
      if (t.finished()) moved = true;
    }
    if (waits_for.empty() && !moved) break;
    if (moved) continue;
    if (Status e = team.pause(tick, waits_for[turn % waits_for.size()], &since)) {
      *error = team.error();
      return e;
    }
  }
  return error->empty() ? kOk : kInvalidUsage;
}

}  // namespace

const char *missing_buffer(const Call &c, const Team &team) {
  Shape s = shape(c.kind);
  size_t bytes = c.count * type_size(c.type), n = size_t(team.ranks());
  bool sends = c.kind == Kind::kSend, receives = c.kind == Kind::kReceive;
  if (!sends && !receives) {
    sends = !s.only_root_sends || team.rank() == c.root;
    receives = !s.only_root_receives || team.rank() == c.root;
  }
  if (!bytes) return "";
  if (sends && !is_device_memory(c.send, bytes * (s.part_for_each_rank ? n : 1))) return "send";
  if (receives && !is_device_memory(c.receive, bytes * (s.part_of_each_rank ? n : 1))) return "receive";
  return "";
}

void run(const Handle &comm, const std::vector<Call> &calls) {
  if (comm->status != kOk) return;
  WithoutInterpreterLock unlocked;  // another rank may have to run Python before it gets here
  Team &team = *comm->team;
  std::string error;
  Status status = kOk;
  std::vector<const Call *> transfers;
  for (const Call &c : calls) {
    if (const char *which = missing_buffer(c, team); *which) {
      error = std::string(c.function) + ": its " + which + " buffer is not device memory when the work is done";
      violate("%s", error.c_str());
      status = kCudaError;
    } else if (c.kind == Kind::kSend || c.kind == Kind::kReceive) {
      transfers.push_back(&c);
    } else {
      status = collective(team, c, &error);
    }
    if (status) break;
  }
  if (!status && !transfers.empty()) status = transfer(team, transfers, &error);
  if (!status) return;
  set_error(*comm, status, error);
  team.leave();  // so that the others do not wait for this rank
}

}  // namespace nccl
}  // namespace standin
