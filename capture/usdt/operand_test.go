package usdt

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// describe writes an operand as text, for the cases.
func describe(o operand) string {
	name := func(id uint8) string {
		for _, n := range []string{"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10",
			"r11", "r12", "r13", "r14", "r15"} {
			if registers[n].id == id {
				return n
			}
		}
		return fmt.Sprint("register ", id)
	}
	kind := "unsigned"
	if o.signed {
		kind = "signed"
	}
	s := fmt.Sprintf("%s %d: ", kind, o.size)
	switch o.kind {
	case constant:
		return s + fmt.Sprintf("constant %d", o.value)
	case register:
		s += name(o.base)
		if o.shift > 0 {
			s += fmt.Sprintf(" >> %d", o.shift)
		}
		return s
	}
	s += fmt.Sprintf("[%d", o.value)
	if o.base != noRegister {
		s += " + " + name(o.base)
	}
	if o.index != noRegister {
		s += fmt.Sprintf(" + %s*%d", name(o.index), 1<<o.scale)
	}
	return s + "]"
}

// Cases are text: an argument string, and what each argument is or why it is refused.
func TestOperands(t *testing.T) {
	data, err := os.ReadFile("testdata/operands.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range txtar.Parse(data).Files {
		t.Run(f.Name, func(t *testing.T) {
			for line := range strings.Lines(string(f.Data)) {
				args, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
				list, err := parseOperands(args)
				var got []string
				for _, o := range list {
					got = append(got, describe(o))
				}
				text := strings.Join(got, "; ")
				if err != nil {
					if !errors.Is(err, errOperand) {
						t.Errorf("%s: an error of another kind: %v", args, err)
					}
					text = "refused"
				}
				if text != want {
					t.Errorf("%s => %s (%v), want %s", args, text, err, want)
				}
			}
		})
	}
}

func TestAValueIsWidenedByItsSign(t *testing.T) {
	reg := func(uint8) uint64 { return 0x1122334455668880 }
	load := func(addr uint64, _ uint8) uint64 { return 0xdeadbeef00000000 | addr }
	for text, want := range map[string]int64{
		"-1@%al": -128, "1@%al": 128, "-1@%ah": -120, "-2@%ax": -0x7780, "4@%eax": 0x55668880,
		"8@%rax": 0x1122334455668880,
		"4@$-1":  0xffffffff, "-4@$-1": -1, "1@16": 16, "4@16": 16, "-4@4026531840": -268435456,
		"8@$18446744073709551615": -1,
	} {
		list, err := parseOperands(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := list[0].read(reg, load); got != want {
			t.Errorf("%s reads %d, want %d", text, got, want)
		}
	}
}

func FuzzOperands(f *testing.F) {
	f.Add("-8@%rax -1@%dl -8@%r14 -8@-104(%rbp)")
	f.Add("8@(,%rbx,8) 4@$0x10 1@%ah")
	f.Fuzz(func(t *testing.T, args string) {
		list, err := parseOperands(args)
		if err != nil {
			return
		}
		for _, o := range list {
			// What is accepted is within what the kernel program can do.
			if o.kind == absent || o.size != 1 && o.size != 2 && o.size != 4 && o.size != 8 || o.scale > 3 ||
				o.shift != 0 && o.shift != 8 {
				t.Errorf("%q gives %+v", args, o)
			}
			if o.base != noRegister && o.base > 19 || o.index != noRegister && o.index > 19 ||
				o.kind == register && o.base == noRegister {
				t.Errorf("%q gives %+v", args, o)
			}
		}
	})
}

// read returns the argument's value: what the kernel program computes. load
// reads size bytes of the user's memory.
func (o operand) read(reg func(id uint8) uint64, load func(addr uint64, size uint8) uint64) int64 {
	switch o.kind {
	case constant:
		return o.value
	case register:
		return o.narrow(int64(reg(o.base) >> o.shift))
	case memory:
		at := uint64(o.value)
		if o.base != noRegister {
			at += reg(o.base)
		}
		if o.index != noRegister {
			at += reg(o.index) << o.scale
		}
		return o.narrow(int64(load(at, o.size) & (math.MaxUint64 >> (64 - 8*int(o.size)))))
	}
	return 0
}
