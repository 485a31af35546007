package usdt

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Arguments of a static probe
//
// A note's argument string has one word an argument, N@OP. N is the size in bytes, negative for a signed one;
// without "N@" it is the operand's own. OP is an operand in the assembler's syntax, whatever the compiler had
// at hand:
//
//	$-5             a constant
//	%rax %dl %ah    a register or a part of it
//	-104(%rbp)      memory: displacement(base, index, scale), each part optional
//	8(%rax,%rbx,4)
//	4096            memory at an absolute address
//
// A value of fewer than eight bytes is widened by its sign. An operand of another form (a symbol, a
// thread-local variable, a floating point register) is refused by name: reading something else in its place
// would be worse than not attaching.
//
// Source: SystemTap, "User Space Probe Implementation", argument format; sys/sdt.h.

// operandKind says how an operand is read. The values are those of probe.bpf.c.
type operandKind uint8

const (
	absent operandKind = iota
	constant
	register
	memory
)

// noRegister stands for a base or an index that an operand does not have.
const noRegister = 255

// operand is where one argument is when a probe is hit.
type operand struct {
	value  int64 // the constant, or the displacement
	kind   operandKind
	base   uint8 // index of the register in the kernel's struct pt_regs
	index  uint8
	scale  uint8 // of the index, as a shift
	size   uint8 // 1, 2, 4 or 8 bytes
	signed bool
	shift  uint8 // 8 for the second byte of a register
}

type registerPart struct{ id, size, shift uint8 }

// registers maps the names of x86-64 to indices into struct pt_regs.
var registers = func() map[string]registerPart {
	m := map[string]registerPart{}
	for name, id := range map[string]uint8{"bp": 4, "bx": 5, "ax": 10, "cx": 11, "dx": 12, "si": 13, "di": 14,
		"sp": 19} {
		m["r"+name], m["e"+name], m[name] = registerPart{id, 8, 0}, registerPart{id, 4, 0},
			registerPart{id, 2, 0}
		if strings.HasSuffix(name, "x") {
			m[name[:1]+"l"], m[name[:1]+"h"] = registerPart{id, 1, 0}, registerPart{id, 1, 8}
		} else {
			m[name+"l"] = registerPart{id, 1, 0}
		}
	}
	for i, id := range []uint8{9, 8, 7, 6, 3, 2, 1, 0} { // r8 to r15
		name := "r" + strconv.Itoa(8+i)
		m[name], m[name+"d"], m[name+"w"], m[name+"b"] = registerPart{id, 8, 0}, registerPart{id, 4, 0},
			registerPart{id, 2, 0}, registerPart{id, 1, 0}
	}
	return m
}()

var errOperand = errors.New("an operand of a form that is not supported")

// parseOperands reads the argument string of a note.
func parseOperands(args string) ([]operand, error) {
	var list []operand
	for i, word := range strings.Fields(args) {
		o, err := parseOperand(word)
		if err != nil {
			return nil, fmt.Errorf("argument %d, %q: %w", i+1, word, err)
		}
		list = append(list, o)
	}
	return list, nil
}

func parseOperand(word string) (operand, error) {
	o := operand{base: noRegister, index: noRegister, size: 8}
	size, text, sized := strings.Cut(word, "@")
	if sized {
		n, err := strconv.Atoi(size)
		if err != nil {
			return operand{}, fmt.Errorf("%w: size %q", errOperand, size)
		}
		switch n {
		case 1, 2, 4, 8:
			o.size = uint8(n)
		case -1, -2, -4, -8:
			o.size, o.signed = uint8(-n), true
		default:
			return operand{}, fmt.Errorf("%w: size %d", errOperand, n)
		}
	} else {
		text = word
	}
	var err error
	switch {
	case strings.HasPrefix(text, "$"):
		o.kind = constant
		o.value, err = integer(text[1:])
		o.value = o.narrow(o.value)
	case strings.HasPrefix(text, "%") && strings.Contains(text, ":"):
		err = fmt.Errorf("%w: memory relative to a segment", errOperand)
	case strings.HasPrefix(text, "%"):
		part, ok := registers[text[1:]]
		if !ok {
			return operand{}, fmt.Errorf("%w: register %q", errOperand, text)
		}
		o.kind, o.base, o.shift = register, part.id, part.shift
		if !sized {
			o.size = part.size
		}
	default:
		err = o.parseMemory(text)
	}
	return o, err
}

// parseMemory reads displacement(base,index,scale).
func (o *operand) parseMemory(text string) (err error) {
	o.kind = memory
	displacement, inner, address := strings.Cut(text, "(")
	if displacement != "" {
		if o.value, err = integer(displacement); err != nil {
			return err
		}
	}
	if !address {
		if displacement == "" {
			return errOperand
		}
		return nil
	}
	inner, closed := strings.CutSuffix(inner, ")")
	parts := strings.Split(inner, ",")
	if !closed || len(parts) > 3 {
		return errOperand
	}
	if parts[0] != "" || len(parts) == 1 {
		if o.base, err = addressRegister(parts[0]); err != nil {
			return err
		}
	}
	if len(parts) > 1 {
		if o.index, err = addressRegister(parts[1]); err != nil {
			return err
		}
	}
	if len(parts) > 2 {
		switch parts[2] {
		case "1", "":
		case "2":
			o.scale = 1
		case "4":
			o.scale = 2
		case "8":
			o.scale = 3
		default:
			return fmt.Errorf("%w: scale %q", errOperand, parts[2])
		}
	}
	return nil
}

// addressRegister returns a register that can be part of an address: a whole one.
func addressRegister(name string) (uint8, error) {
	part, ok := registers[strings.TrimPrefix(name, "%")]
	if !ok || !strings.HasPrefix(name, "%") || part.size != 8 {
		return 0, fmt.Errorf("%w: address register %q", errOperand, name)
	}
	return part.id, nil
}

// integer reads a number as the assembler does: decimal, 0x or 0 for octal; a value above the largest int64
// wraps.
func integer(s string) (int64, error) {
	if strings.ContainsAny(s, "_bBoO") && !strings.HasPrefix(strings.TrimPrefix(s, "-"), "0x") ||
		strings.Contains(s, "_") {
		return 0, fmt.Errorf("%w: number %q", errOperand, s)
	}
	if v, err := strconv.ParseInt(s, 0, 64); err == nil {
		return v, nil
	}
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: number %q", errOperand, s)
	}
	return int64(v), nil
}

// narrow cuts v to the operand's size and widens it again by its sign.
func (o operand) narrow(v int64) int64 {
	bits := 64 - 8*int(o.size)
	if o.signed {
		return v << bits >> bits
	}
	return int64(uint64(v) << bits >> bits)
}
