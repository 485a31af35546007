package usdt

import "bytes"

// Choosing the instruction
//
// A uprobe replaces one instruction by a breakpoint. After the handler the kernel either emulates that
// instruction (nop, push, jump, call: arch/x86/kernel/uprobes.c) or lets the processor step over a copy of it
// and takes a second trap. The second trap is the expensive one: on a virtual machine it was measured at
// twenty times the whole rest.
//
// A probe need not be on a function's first byte. It must be where every call passes, before the argument
// registers and the stack pointer change (the return probe finds the return address through the latter). So
// the code is followed from the entry over instructions that change neither until one comes that is emulated.
// NVIDIA's functions begin with
//
//	81 3d rel32 imm32   cmpl $imm32, flag(%rip)
//	74 rel8             je   ...
//
// and the probe goes on the je. An instruction that is not in the short list below ends the search, and the
// probe stays on the first byte: slower and always right. A disassembler was rejected: the question is not
// what an instruction is but whether it is one of these.

// maxPrologue is how many bytes of a function are looked at.
const maxPrologue = 48

// harmless lists beginnings of instructions that change no argument register, no stack pointer and no control
// flow, with their lengths.
var harmless = []struct {
	code   []byte
	length int
}{
	{[]byte{0xf3, 0x0f, 0x1e, 0xfa}, 4}, // endbr64
	{[]byte{0x81, 0x3d}, 10},            // cmpl $imm32, disp(%rip)
	{[]byte{0x48, 0x81, 0x3d}, 11},      // cmpq $imm32, disp(%rip)
	{[]byte{0x83, 0x3d}, 7},             // cmpl $imm8, disp(%rip)
	{[]byte{0x48, 0x83, 0x3d}, 8},       // cmpq $imm8, disp(%rip)
	{[]byte{0x80, 0x3d}, 7},             // cmpb $imm8, disp(%rip)
	{[]byte{0x8b, 0x05}, 6},             // mov disp(%rip), %eax
	{[]byte{0x48, 0x8b, 0x05}, 7},       // mov disp(%rip), %rax
	{[]byte{0x85, 0xc0}, 2},             // test %eax, %eax
	{[]byte{0x48, 0x85, 0xc0}, 3},       // test %rax, %rax
	{[]byte{0x84, 0xc0}, 2},             // test %al, %al
	{[]byte{0x3d}, 5},                   // cmp $imm32, %eax
	{[]byte{0x83, 0xf8}, 3},             // cmp $imm8, %eax
	{[]byte{0x31, 0xc0}, 2},             // xor %eax, %eax
}

// cheapOffset returns the offset of the instruction to probe in the code of a function, and whether the
// kernel emulates it.
func cheapOffset(code []byte) (offset int, emulated bool) {
	code = code[:min(len(code), maxPrologue)]
next:
	for at := 0; at < len(code); {
		rest := code[at:]
		if isEmulated(rest) {
			return at, true
		}
		for _, h := range harmless {
			if bytes.HasPrefix(rest, h.code) && len(rest) > h.length {
				at += h.length
				continue next
			}
		}
		break
	}
	return 0, false
}

// isEmulated reports whether code begins with an instruction that the kernel emulates.
func isEmulated(code []byte) bool {
	switch c := code[0]; {
	case c == 0x90: // nop
		return true
	case 0x50 <= c && c <= 0x57: // push
		return true
	case 0x70 <= c && c <= 0x7f: // jcc rel8
		return len(code) >= 2
	case c == 0xeb: // jmp rel8
		return len(code) >= 2
	case c == 0xe9, c == 0xe8: // jmp, call rel32
		return len(code) >= 5
	case c == 0x41: // push %r8 to %r15
		return len(code) >= 2 && 0x50 <= code[1] && code[1] <= 0x57
	case c == 0x0f: // jcc rel32
		return len(code) >= 6 && 0x80 <= code[1] && code[1] <= 0x8f
	}
	return false
}
