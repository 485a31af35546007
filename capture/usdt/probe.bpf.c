//go:build ignore

// What runs in the kernel when a probe is hit. One object serves every probe: the loader loads a copy for
// each, with constants that say where the probe's arguments are. The verifier drops the code that a copy does
// not need.
//
//	site   a USDT probe, or the entry of a function whose arguments say everything: writes one event
//	enter  the entry of a function that returns its result through a pointer: keeps the arguments
//	leave  that function's return: follows the pointer, writes one event
//
// It needs no kernel headers: it uses only stable helpers and the layout of x86-64 registers.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef int s32;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define always_inline inline __attribute__((always_inline))
#define FIELD(name, val) int(*name)[val]
#define KIND(name, val) typeof(val) *name

enum { MAP_HASH = 1, MAP_PERCPU_ARRAY = 6, MAP_STACK_TRACE = 7, MAP_RINGBUF = 27 };
enum { ANY = 0, RB_NO_WAKEUP = 1, RB_FORCE_WAKEUP = 2, RB_AVAIL_DATA = 0 };
enum { USER_STACK = 1 << 8, FAST_STACK_CMP = 1 << 9 };

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*ktime)(void) = (void *)5;
static u64 (*pid_tgid)(void) = (void *)14;
static long (*stackid)(void *ctx, void *map, u64 flags) = (void *)27;
static long (*read_user)(void *to, u32 size, const void *from) = (void *)112;
static void *(*ring_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*ring_submit)(void *data, u64 flags) = (void *)132;
static u64 (*ring_query)(void *ring, u64 flags) = (void *)134;

// The user's registers in the order of the kernel's struct pt_regs on x86-64.
struct regs { u64 r[21]; };
enum { REG_AX = 10 };

// Where an argument is. The Go type operand has the same layout.
struct operand {
	s64 value; // the constant, or the displacement
	u8 kind;
	u8 base, index; // registers; NO_REG for none
	u8 scale;       // of the index, as a shift
	u8 size;        // in bytes
	u8 is_signed;
	u8 shift; // 8 for a register's high byte, such as AH
	u8 pad;
};
enum { NONE = 0, CONSTANT = 1, REGISTER = 2, MEMORY = 3 };
enum { NO_REG = 255 };

struct event {
	u64 time; // CLOCK_MONOTONIC, ns
	u64 addr;
	u64 size;
	u64 stream;
	u32 thread;
	s32 stack; // negative if there is none
	s32 result;
	s32 device;
	u32 site;
	u32 pad;
};

struct call {
	u64 out, size, stream, pitch;
	s32 device;
	u32 pad;
};

const volatile u32 site_id;
const volatile u8 want_stack;
const volatile u64 wakeup_bytes;
const volatile struct operand arg_addr, arg_size, arg_stream, arg_device, arg_pitch;

struct {
	FIELD(type, MAP_RINGBUF);
	FIELD(max_entries, 1 << 25);
} events SEC(".maps");
struct {
	FIELD(type, MAP_HASH);
	FIELD(max_entries, 8192);
	KIND(key, u64);
	KIND(value, struct call);
} calls SEC(".maps");
struct {
	FIELD(type, MAP_STACK_TRACE);
	FIELD(max_entries, 16384);
	FIELD(key_size, 4);
	FIELD(value_size, 127 * 8);
} stacks SEC(".maps");
struct {
	FIELD(type, MAP_PERCPU_ARRAY);
	FIELD(max_entries, 4);
	KIND(key, u32);
	KIND(value, u64);
} lost SEC(".maps");
enum { LOST_RING = 0, LOST_CALL = 1, LOST_READ = 2, LOST_STACK = 3 };

// Makes the object describe struct event, from which bpf2go makes a Go type.
const struct event *unused_event __attribute__((unused));

static always_inline void lose(u32 why)
{
	u64 *n = map_lookup(&lost, &why);
	if (n)
		*n += 1;
}

// A program may read its context at constant offsets only, so each register has its own instruction. The
// verifier drops all but one as dead code.
#define REG(n)                                                                                     \
	if (id == n)                                                                               \
		asm volatile("%0 = *(u64 *)(%1 + " #n " * 8)" : "=r"(v) : "r"(ctx));

static always_inline u64 reg(struct regs *ctx, u8 id)
{
	u64 v = 0;
	REG(0) REG(1) REG(2) REG(3) REG(4) REG(5) REG(6) REG(7) REG(8) REG(9) REG(10)
	REG(11) REG(12) REG(13) REG(14) REG(19)
	return v;
}

static always_inline u64 narrow(u64 v, u8 size, u8 is_signed)
{
	if (size == 1)
		return is_signed ? (u64)(s64)(s8)v : (u8)v;
	if (size == 2)
		return is_signed ? (u64)(s64)(short)v : (u16)v;
	if (size == 4)
		return is_signed ? (u64)(s64)(s32)v : (u32)v;
	return v;
}

static always_inline u64 arg(struct regs *ctx, const volatile struct operand *o)
{
	u64 v = 0;

	if (o->kind == CONSTANT)
		return o->value;
	if (o->kind == REGISTER)
		return narrow(reg(ctx, o->base) >> o->shift, o->size, o->is_signed);
	if (o->kind == MEMORY) {
		u64 at = o->value;
		if (o->base != NO_REG)
			at += reg(ctx, o->base);
		if (o->index != NO_REG)
			at += reg(ctx, o->index) << o->scale;
		if (read_user(&v, o->size == 1 ? 1 : o->size == 2 ? 2 : o->size == 4 ? 4 : 8, (void *)at))
			lose(LOST_READ);
		return narrow(v, o->size, o->is_signed);
	}
	return 0;
}

static always_inline struct event *begin(struct regs *ctx, u64 id)
{
	struct event *e;
	s32 stack = -1;

	if (want_stack) {
		stack = stackid(ctx, &stacks, USER_STACK | FAST_STACK_CMP);
		if (stack < 0)
			lose(LOST_STACK);
	}
	e = ring_reserve(&events, sizeof(*e), 0);
	if (!e) {
		lose(LOST_RING);
		return 0;
	}
	e->time = ktime();
	e->thread = (u32)id;
	e->stack = stack;
	e->site = site_id;
	e->pad = 0;
	return e;
}

// The reader wakes up every few milliseconds anyway. Waking it for each event would cost more than the event.
static always_inline void end(struct event *e)
{
	u64 waiting = ring_query(&events, RB_AVAIL_DATA);
	ring_submit(e, waiting >= wakeup_bytes ? RB_FORCE_WAKEUP : RB_NO_WAKEUP);
}

SEC("uprobe/site") int site(struct regs *ctx)
{
	u64 addr = arg(ctx, &arg_addr), size = arg(ctx, &arg_size), stream = arg(ctx, &arg_stream);
	s32 device = arg(ctx, &arg_device);
	struct event *e = begin(ctx, pid_tgid());

	if (!e)
		return 0;
	e->addr = addr;
	e->size = size;
	e->stream = stream;
	e->device = device;
	e->result = 0;
	end(e);
	return 0;
}

// One thread's calls of different functions can nest; its calls of the same function do not.
static always_inline u64 call_key(u64 id) { return id ^ ((u64)site_id << 56); }

SEC("uprobe/enter") int enter(struct regs *ctx)
{
	u64 key = call_key(pid_tgid());
	struct call c = {};

	c.out = arg(ctx, &arg_addr);
	c.size = arg(ctx, &arg_size);
	c.stream = arg(ctx, &arg_stream);
	c.device = arg(ctx, &arg_device);
	c.pitch = arg(ctx, &arg_pitch);
	if (map_update(&calls, &key, &c, ANY))
		lose(LOST_CALL);
	return 0;
}

SEC("uretprobe/leave") int leave(struct regs *ctx)
{
	u64 id = pid_tgid(), key = call_key(id), addr = 0, pitch = 0, size;
	struct call *c = map_lookup(&calls, &key);
	struct event *e;

	if (!c) // the call began before the probe did
		return 0;
	if (read_user(&addr, 8, (void *)c->out))
		lose(LOST_READ);
	size = c->size;
	if (arg_pitch.kind != NONE && c->pitch) {
		if (read_user(&pitch, 8, (void *)c->pitch))
			lose(LOST_READ);
		size *= pitch;
	}
	e = begin(ctx, id);
	if (e) {
		e->addr = addr;
		e->size = size;
		e->stream = c->stream;
		e->device = c->device;
		e->result = (s32)ctx->r[REG_AX];
		end(e);
	}
	map_delete(&calls, &key);
	return 0;
}

// The kernel lets only programs with a license compatible with the GPL call some of the helpers above.
char _license[] SEC("license") = "Dual MIT/GPL";
