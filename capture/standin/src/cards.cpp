// Cards: what is known about each model.
//
// Memory is the total that PyTorch prints in its out-of-memory messages on such a card ("GPU 0 has a total
// capacity of 79.11 GiB"), as found in public reports; driver releases and ECC change it by some tens of MiB.
// Compute capabilities, multiprocessors and their shared memory, threads and blocks, clocks, bus widths, L2
// sizes, links and power come from NVIDIA's CUDA programming guide (the table of technical specifications per
// compute capability) and from the cards' public data sheets and architecture white papers. link_rate and
// memory_rate are used by the virtual clock only: the peaks of PCIe and of the memory in GB/s.
//
// "plain" is not a real card. Its figures are round, for tests that calculate.
#include <strings.h>

#include <cstdio>
#include <cstdlib>

#include "core.h"

namespace standin {

namespace {

constexpr uint64_t gib(double n) { return static_cast<uint64_t>(n * 1024) * kMiB; }

// The most shared memory that a block can opt in to, by compute capability.
constexpr uint64_t k70 = 96 * kKiB, k75 = 64 * kKiB, k80 = 163 * kKiB, k86 = 99 * kKiB, k90 = 227 * kKiB;

const Card cards[] = {
    {"h100",     "NVIDIA H100 80GB HBM3",
     gib(79.19), gib(0.625),
     9,          0,
     132,        2048,
     32,         k90,
     228 * kKiB, 50 * kMiB,
     5120,       1980000,
     2619000,    55,
     3350,       5,
     16,         18,
     700},
    {"h200",    "NVIDIA H200", gib(139.81), gib(0.625), 9,  0,    132, 2048, 32, k90, 228 * kKiB,
     50 * kMiB, 6144,          1980000,     3201000,    55, 4800, 5,   16,   18, 700},
    {"b200",     "NVIDIA B200", gib(178.35), gib(0.75), 10, 0,    148, 2048, 32, k90, 228 * kKiB,
     126 * kMiB, 7680,          1965000,     3996000,   55, 7700, 5,   16,   18, 1000},
    {"a100",     "NVIDIA A100-SXM4-80GB",
     gib(79.25), gib(0.625),
     8,          0,
     108,        2048,
     32,         k80,
     164 * kKiB, 40 * kMiB,
     5120,       1410000,
     1593000,    26,
     2039,       4,
     16,         12,
     400},
    {"a100-40",  "NVIDIA A100-SXM4-40GB",
     gib(39.39), gib(0.5),
     8,          0,
     108,        2048,
     32,         k80,
     164 * kKiB, 40 * kMiB,
     5120,       1410000,
     1215000,    26,
     1555,       4,
     16,         12,
     400},
    {"v100",     "Tesla V100-SXM2-32GB",
     gib(31.73), gib(0.25),
     7,          0,
     80,         2048,
     32,         k70,
     96 * kKiB,  6 * kMiB,
     4096,       1530000,
     877000,     13,
     900,        3,
     16,         6,
     300},
    {"v100-16",  "Tesla V100-SXM2-16GB",
     gib(15.77), gib(0.25),
     7,          0,
     80,         2048,
     32,         k70,
     96 * kKiB,  6 * kMiB,
     4096,       1530000,
     877000,     13,
     900,        3,
     16,         6,
     300},
    {"a10g",   "NVIDIA A10G", gib(22.06), gib(0.5), 8,  6,   80, 1536, 16, k86, 100 * kKiB,
     6 * kMiB, 384,           1710000,    6251000,  26, 600, 4,  16,   0,  300},
    {"l4",      "NVIDIA L4", gib(22.04), gib(0.5), 8,  9,   58, 1536, 24, k86, 100 * kKiB,
     48 * kMiB, 192,         2040000,    6251000,  26, 300, 4,  16,   0,  72},
    {"t4",     "Tesla T4", gib(14.58), gib(0.375), 7,  5,   40, 1024, 16, k75, 64 * kKiB,
     4 * kMiB, 256,        1590000,    5001000,    13, 320, 3,  16,   0,  70},
    {"l40s", "NVIDIA L40S", gib(44.53), gib(0.46), 8,  9,   142, 1536, 24, k86, 100 * kKiB,
     96 * kMiB, 384,       2520000,    9001000,  26, 864, 4,  16,   0,  350},
    {"a6000", "NVIDIA RTX A6000", gib(47.53), gib(0.46), 8,  6,   84, 1536, 16, k86, 100 * kKiB,
     6 * kMiB, 384,             1800000,    8001000,  26, 768, 4,  16,   4,  300},
    {"rtx3060", "NVIDIA GeForce RTX 3060", gib(11.76), gib(0.24), 8,  6,   28, 1536, 16, k86, 100 * kKiB,
     3 * kMiB,  192,                       1777000,    7501000,   26, 360, 4,  16,   0,  170},
    {"rtx5090", "NVIDIA GeForce RTX 5090", gib(31.36), gib(0.48), 12, 0,   170, 1536, 24, k86, 100 * kKiB,
     96 * kMiB, 512,                       2407000,    14001000,  55, 1792, 5,  16,   0,  575},
    {"rtx6000", "Quadro RTX 6000", gib(23.65), gib(0.25), 7,  5,   72, 1024, 16, k75, 64 * kKiB,
     6 * kMiB,  384,               1770000,    7001000,   13, 672, 3,  16,   2,  260},
    {"rtx3090",  "NVIDIA GeForce RTX 3090",
     gib(23.69), gib(0.25),
     8,          6,
     82,         1536,
     16,         k86,
     100 * kKiB, 6 * kMiB,
     384,        1695000,
     9751000,    26,
     936,        4,
     16,         4,
     350},
    {"rtx4090",  "NVIDIA GeForce RTX 4090",
     gib(23.64), gib(0.25),
     8,          9,
     128,        1536,
     24,         k86,
     100 * kKiB, 72 * kMiB,
     384,        2520000,
     10501000,   26,
     1008,       4,
     16,         0,
     450},
    {"plain",   "Stand-in GPU", 1 * kGiB, 0,       9, 0,  8, 2048, 32, k90, 228 * kKiB,
     50 * kMiB, 5120,           1000000,  1000000, 1, 10, 4, 16,   0,  100},
};

}  // namespace

const Card &card(int) {
  const std::string &model = settings().model;
  for (auto &c : cards)
    if (model == c.model || strcasecmp(model.c_str(), c.model) == 0) return c;
  static const bool said = [&] {
    if (!model.empty()) {
      fprintf(stderr, "stand-in GPU: no model %s; there are:", model.c_str());
      for (auto &c : cards) fprintf(stderr, " %s", c.model);
      fprintf(stderr, "\n");
      exit(2);
    }
    return true;
  }();
  (void)said;
  return cards[0];
}

int pci_bus(int device) { return 4 + device; }

// Never the UUID of a real card: the first bytes spell "standin".
void uuid(int device, unsigned char out[16]) {
  const char *name = "standin";
  for (int i = 0; i < 16; i++) out[i] = i < 7 ? name[i] : static_cast<unsigned char>(i * 17 + device);
}

}  // namespace standin
