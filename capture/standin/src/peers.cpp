// Peers: devices that can reach each other's memory. On a stand-in machine all can. Copies between devices
// always work, as on real ones, through the host. Access must be enabled once in each direction, and enabling
// it twice is an error.
#include "core.h"

namespace standin {

namespace {

Result enable(int peer) {
  if (peer < 0 || peer >= devices()) return kInvalidDevice;
  Lock lock(core());
  Context *c = current_or_primary(lock);
  if (!c) return kInvalidContext;
  if (c->device == peer) return kInvalidDevice;
  return c->peers.insert(peer).second ? kSuccess : kPeerAccessAlreadyEnabled;
}

Result disable(int peer) {
  if (peer < 0 || peer >= devices()) return kInvalidDevice;
  Lock lock(core());
  Context *c = current_or_primary(lock);
  return c && c->peers.erase(peer) ? kSuccess : kPeerAccessNotEnabled;
}

Result can(int *out, int from, int to) {
  if (!out) return kInvalidValue;
  if (from < 0 || to < 0 || from >= devices() || to >= devices()) return kInvalidDevice;
  *out = from != to;
  return kSuccess;
}

// CUdevice_P2PAttribute: 1 rank, 2 access, 3 atomics, 4 arrays.
Result p2p(int *out, int attribute, int from, int to) {
  int reach;
  if (Result r = can(&reach, from, to)) return r;
  if (from == to) return kInvalidDevice;
  *out = attribute == 2 || attribute == 3 ? reach : 0;
  return kSuccess;
}

}  // namespace

}  // namespace standin

using namespace standin;

STANDIN_API int cudaDeviceCanAccessPeer(int *can_access, int a, int b) {
  STANDIN_QUERY();
  return keep_error(can(can_access, a, b));
}
STANDIN_API int cudaDeviceEnablePeerAccess(int peer, unsigned) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(enable(peer));
}
STANDIN_API int cudaDeviceDisablePeerAccess(int peer) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(disable(peer));
}
STANDIN_API int cudaDeviceGetP2PAttribute(int *v, int a, int from, int to) {
  STANDIN_QUERY();
  return keep_error(p2p(v, a, from, to));
}
STANDIN_API int cuDeviceCanAccessPeer(int *can_access, int a, int b) {
  STANDIN_QUERY();
  return can(can_access, a, b);
}
STANDIN_API int cuDeviceGetP2PAttribute(int *v, int a, int from, int to) {
  STANDIN_QUERY();
  return p2p(v, a, from, to);
}
STANDIN_API int cuCtxEnablePeerAccess(void *context, unsigned) {
  STANDIN_ENTER();
  return context ? enable(static_cast<Context *>(context)->device) : kInvalidContext;
}
STANDIN_API int cuCtxDisablePeerAccess(void *context) {
  STANDIN_ENTER();
  return context ? disable(static_cast<Context *>(context)->device) : kInvalidContext;
}
