package networks

import (
	"fmt"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// Tensors of a transformer have c = 1, h = the sequence's length and w = the width, so that a row is a token.

// tokens begins the iteration of a transformer: inputs of one integer a token, the labels among them, written
// by the loader.
func (t *layers) tokens(names ...string) []plan.BufferID {
	inputs := make([]plan.BufferID, len(names), len(names)+1)
	for i, name := range names {
		inputs[i] = t.buffer(name, t.batch*int64(t.opt.Sequence)*8, timeline.Input)
	}
	t.label = t.buffer("labels", t.batch*int64(t.opt.Sequence)*8, timeline.Input)
	t.load("data", append(inputs, t.label)...)
	return inputs
}

// embed looks tokens up in a table and returns their vectors and the table's index in params. Its gradient is
// dense, as PyTorch's is.
func (t *layers) embed(name string, ids plan.BufferID, rows, width int64) (*tensor, int) {
	weight := t.param(name+".weight", rows*width)
	y := t.output(name, 1, int64(t.opt.Sequence), width, true)
	i := t.op(name, name, plan.ClassOther, 0, read(ids), read(t.params[weight].buf), write(y.buf))
	t.p.Ops[i].Duration = t.price(0, 2*float64(y.elems*elemSize)) // it reads the rows that it needs
	t.backward = append(t.backward, func() {
		dy := t.take(y)
		dw := t.paramGrad(weight)
		t.op(name+".backward", name, plan.ClassOther, 0, read(dy), read(ids), write(dw))
		t.release(y)
		t.settle(weight, dw, name)
	})
	return y, weight
}

// positions adds a table of one row a position, out of place; its gradient is a sum over the batch.
func (t *layers) positions(name string, x *tensor, rows int64) *tensor {
	weight := t.param(name+".weight", rows*x.w)
	y := t.output(name, x.c, x.h, x.w, true)
	i := t.op(name, name, plan.ClassOther, 0, read(x.buf), read(t.params[weight].buf), write(y.buf))
	t.p.Ops[i].Duration = t.price(0, float64((2*x.elems+x.h*x.w)*elemSize))
	t.backward = append(t.backward, func() {
		dy := t.take(y)
		dw := t.paramGrad(weight)
		t.op(name+".backward", name, plan.ClassOther, 0, read(dy), write(dw))
		t.settle(weight, dw, name)
		t.give(x, dy, name)
		t.release(y)
	})
	return y
}

// sum adds two values out of place; both get its gradient unchanged.
func (t *layers) sum(name string, a, b *tensor) *tensor {
	y := t.output(name, a.c, a.h, a.w, true)
	t.op(name, name, plan.ClassOther, 0, read(a.buf), read(b.buf), write(y.buf))
	t.backward = append(t.backward, func() {
		d := t.take(y)
		t.give(a, d, name)
		t.give(b, d, name)
		t.release(y)
	})
	return y
}

// layerNorm saves its input and two figures a row.
func (t *layers) layerNorm(name string, x *tensor) *tensor {
	weight, bias := t.param(name+".weight", x.w), t.param(name+".bias", x.w)
	saved := t.buffer(name+".saved", 2*(x.elems/x.w)*elemSize, timeline.Activation)
	y := t.output(name, x.c, x.h, x.w, true)
	t.op(name, name, plan.ClassNorm, 0, read(x.buf), read(t.params[weight].buf), read(t.params[bias].buf),
		write(y.buf), write(saved))
	t.backward = append(t.backward, func() {
		dy, dx := t.take(y), t.gradient(x)
		dw, db := t.paramGrad(weight), t.paramGrad(bias)
		t.op(name+".backward", name, plan.ClassNorm, 0, read(dy), read(x.buf), read(saved),
			read(t.params[weight].buf),
			write(dx), write(dw), write(db))
		t.release(y)
		t.settle(weight, dw, name)
		t.settle(bias, db, name)
		t.give(x, dx, name)
	})
	return y
}

// activation is out of place and saves its input, or its output where ofOutput (tanh).
func (t *layers) activation(name string, x *tensor, ofOutput bool) *tensor {
	y := t.output(name, x.c, x.h, x.w, true)
	t.op(name, name, plan.ClassActivation, 0, read(x.buf), write(y.buf))
	saved := x.buf
	if ofOutput {
		saved = y.buf
	}
	t.backward = append(t.backward, func() {
		dy, dx := t.take(y), t.gradient(x)
		t.op(name+".backward", name, plan.ClassActivation, 0, read(dy), read(saved), write(dx))
		t.release(y)
		t.give(x, dx, name)
	})
	return y
}

// split returns three views of thirds of x's rows; their gradients are copied together.
func (t *layers) split(name string, x *tensor) (q, k, v *tensor) {
	parts := make([]*tensor, 3)
	for i, part := range []string{".q", ".k", ".v"} {
		parts[i] = &tensor{name: name + part, elems: x.elems / 3, c: x.c, h: x.h, w: x.w / 3, buf: x.buf,
			grad: plan.NoBuffer, needs: true}
	}
	t.backward = append(t.backward, func() {
		dx := t.gradient(x)
		t.op(name+".backward", name, plan.ClassOther, 0, read(t.take(parts[0])), read(t.take(parts[1])),
			read(t.take(parts[2])), write(dx))
		for _, p := range parts {
			t.release(p)
		}
		t.give(x, dx, name)
	})
	return parts[0], parts[1], parts[2]
}

// attention is softmax(q k^T) v over heads, with dropout on the probabilities where drop. Only half of a
// causal mask's scores matter; like the eager implementations, and like the usual count of a transformer's
// arithmetic, it counts them all.
func (t *layers) attention(name string, q, k, v *tensor, heads int64, drop bool) *tensor {
	rows := q.h
	macs := float64(q.elems) * float64(rows) // of one of the two products
	if t.opt.FusedAttention {
		return t.fusedAttention(name, q, k, v, heads, macs)
	}
	// An operand that is a view of a larger buffer is read in its share alone.
	priced := func(i plan.OpID, macs float64, large int64) {
		t.p.Ops[i].Duration = t.price(macs, float64((large+2*q.elems)*elemSize))
	}
	square := t.batch * heads * rows * rows
	scores := t.output(name+".scores", heads, rows, rows, true)
	priced(t.op(name+".scores", name, plan.ClassLinear, macs,
		distinct(read(q.buf), read(k.buf), write(scores.buf))...), macs, square)
	t.backward = append(t.backward, func() {
		ds := t.take(scores)
		dq, dk := t.gradient(q), t.gradient(k)
		accesses := distinct(read(ds), read(q.buf), read(k.buf), write(dq), write(dk))
		priced(t.op(name+".scores.backward", name, plan.ClassLinear, 2*macs, accesses...), 2*macs, square)
		t.release(scores)
		t.give(q, dq, name)
		t.give(k, dk, name)
	})
	probs := t.output(name+".softmax", heads, rows, rows, true)
	t.op(name+".softmax", name, plan.ClassSoftmax, 0, read(scores.buf), write(probs.buf))
	t.backward = append(t.backward, func() {
		dp, ds := t.take(probs), t.gradient(scores)
		t.op(name+".softmax.backward", name, plan.ClassSoftmax, 0, read(dp), read(probs.buf), write(ds))
		t.release(probs)
		t.give(scores, ds, name)
	})
	p := probs
	if drop {
		p = t.dropout(name+".dropout", probs)
	}
	y := t.output(name, q.c, q.h, q.w, true)
	priced(t.op(name, name, plan.ClassLinear, macs, read(p.buf), read(v.buf), write(y.buf)), macs, square)
	t.backward = append(t.backward, func() {
		dy := t.take(y)
		dp, dv := t.gradient(p), t.gradient(v)
		priced(t.op(name+".backward", name, plan.ClassLinear, 2*macs, read(dy), read(p.buf), read(v.buf),
			write(dp), write(dv)), 2*macs, 2*square)
		t.release(y)
		t.give(p, dp, name)
		t.give(v, dv, name)
	})
	return y
}

// fusedAttention keeps its output and one figure a row and head, and computes the probabilities again in its
// backward pass: five products to the forward pass's two. Dropout is within it.
func (t *layers) fusedAttention(name string, q, k, v *tensor, heads int64, macs float64) *tensor {
	y := t.output(name, q.c, q.h, q.w, true)
	sums := t.buffer(name+".logsumexp", t.batch*heads*q.h*elemSize, timeline.Activation)
	i := t.op(name, name, plan.ClassLinear, 2*macs, distinct(read(q.buf), read(k.buf), read(v.buf),
		write(y.buf), write(sums))...)
	t.p.Ops[i].Duration = t.price(2*macs, float64(4*q.elems*elemSize))
	t.backward = append(t.backward, func() {
		dy := t.take(y)
		dq, dk, dv := t.gradient(q), t.gradient(k), t.gradient(v)
		i := t.op(name+".backward", name, plan.ClassLinear, 5*macs,
			distinct(read(dy), read(q.buf), read(k.buf), read(v.buf), read(y.buf), read(sums), write(dq),
				write(dk), write(dv))...)
		t.p.Ops[i].Duration = t.price(5*macs, float64(8*q.elems*elemSize))
		t.release(y)
		t.give(q, dq, name)
		t.give(k, dk, name)
		t.give(v, dv, name)
	})
	return y
}

// distinct drops accesses that repeat one before: views of one buffer.
func distinct(accesses ...plan.Access) []plan.Access {
	kept := accesses[:0]
next:
	for _, a := range accesses {
		for _, b := range kept {
			if a == b {
				continue next
			}
		}
		kept = append(kept, a)
	}
	return kept
}

// bert is BERT's encoder with the head of masked language modelling, whose last weight is the word embedding,
// as Hugging Face's BertForMaskedLM.
func bert(t *layers, blocks int, width, heads int64) {
	const vocabulary, maxPositions = 30522, 512
	ids := t.tokens("input_ids", "token_type_ids")
	x, words := t.embed("embeddings.word_embeddings", ids[0], vocabulary, width)
	segment, _ := t.embed("embeddings.token_type_embeddings", ids[1], 2, width)
	x = t.sum("embeddings.add", x, segment)
	x = t.positions("embeddings.position_embeddings", x, max(maxPositions, int64(t.opt.Sequence)))
	x = t.dropout("embeddings.dropout", t.layerNorm("embeddings.LayerNorm", x))
	for i := range blocks {
		at := func(s string) string { return fmt.Sprintf("layer.%d.%s", i, s) }
		q := t.linear(at("attention.self.query"), x, width, true, -1)
		k := t.linear(at("attention.self.key"), x, width, true, -1)
		v := t.linear(at("attention.self.value"), x, width, true, -1)
		a := t.attention(at("attention.self"), q, k, v, heads, true)
		a = t.dropout(at("attention.output.dropout"), t.linear(at("attention.output.dense"), a, width, true,
			-1))
		x = t.layerNorm(at("attention.output.LayerNorm"), t.sum(at("attention.output.add"), a, x))
		h := t.activation(at("intermediate.gelu"), t.linear(at("intermediate.dense"), x, 4*width, true, -1),
			false)
		h = t.dropout(at("output.dropout"), t.linear(at("output.dense"), h, width, true, -1))
		x = t.layerNorm(at("output.LayerNorm"), t.sum(at("output.add"), h, x))
	}
	x = t.activation("cls.transform.gelu", t.linear("cls.transform.dense", x, width, true, -1), false)
	x = t.linear("cls.decoder", t.layerNorm("cls.transform.LayerNorm", x), vocabulary, true, words)
	t.loss(x)
}

// gpt2 is GPT-2 with its head tied to the word embedding, as Hugging Face's GPT2LMHeadModel.
func gpt2(t *layers, blocks int, width, heads int64) {
	const vocabulary, maxPositions = 50257, 1024
	x, words := t.embed("wte", t.tokens("input_ids")[0], vocabulary, width)
	x = t.dropout("drop", t.positions("wpe", x, max(maxPositions, int64(t.opt.Sequence))))
	for i := range blocks {
		at := func(s string) string { return fmt.Sprintf("h.%d.%s", i, s) }
		q, k, v := t.split(at("attn.split"), t.linear(at("attn.c_attn"), t.layerNorm(at("ln_1"), x), 3*width,
			true, -1))
		a := t.linear(at("attn.c_proj"), t.attention(at("attn"), q, k, v, heads, true), width, true, -1)
		x = t.sum(at("attn.add"), t.dropout(at("attn.resid_dropout"), a), x)
		h := t.linear(at("mlp.c_fc"), t.layerNorm(at("ln_2"), x), 4*width, true, -1)
		h = t.linear(at("mlp.c_proj"), t.activation(at("mlp.gelu"), h, false), width, true, -1)
		x = t.sum(at("mlp.add"), t.dropout(at("mlp.dropout"), h), x)
	}
	x = t.linear("lm_head", t.layerNorm("ln_f", x), vocabulary, false, words)
	t.loss(x)
}
