package batch

import (
	"errors"
	"math/big"
)

// weights returns the weight of each recording in the figures at another point: those with which the
// recordings' terms sum up to the point's.
func (m *Model) weights(batch, sequence int) ([]float64, error) {
	if len(m.points) == 1 {
		return []float64{float64(batch) / float64(m.points[0].Batch)}, nil
	}
	n := len(m.points)
	rows := make([][]*big.Rat, n) // a row a term, a column a recording, the point's term last
	for i := range rows {
		rows[i] = make([]*big.Rat, n+1)
		for k, x := range m.points {
			rows[i][k] = m.term(i, x.Batch, x.Sequence)
		}
		rows[i][n] = m.term(i, batch, sequence)
	}
	for i := range rows { // Gauss and Jordan; rational, so any pivot that is not 0 is as good as another
		pivot := i
		for pivot < n && rows[pivot][i].Sign() == 0 {
			pivot++
		}
		if pivot == n {
			return nil, errors.New("the recordings do not tell batch and sequence apart; record " +
				"different batch sizes at " +
				"one sequence length, and different sequence lengths at one batch size")
		}
		rows[i], rows[pivot] = rows[pivot], rows[i]
		inverse := new(big.Rat).Inv(rows[i][i])
		for k := i; k <= n; k++ {
			rows[i][k].Mul(rows[i][k], inverse)
		}
		for r := range rows {
			if r == i || rows[r][i].Sign() == 0 {
				continue
			}
			factor := new(big.Rat).Set(rows[r][i])
			for k := i; k <= n; k++ {
				rows[r][k].Sub(rows[r][k], new(big.Rat).Mul(factor, rows[i][k]))
			}
		}
	}
	w := make([]float64, n)
	for i := range w {
		w[i], _ = rows[i][n].Float64()
	}
	return w, nil
}

// term returns the value of a term of the polynomial: 1, batch, batch x seq, batch x seq^2.
func (m *Model) term(i, batch, sequence int) *big.Rat {
	v := new(big.Int).SetInt64(1)
	if i > 0 {
		v.SetInt64(int64(batch))
	}
	for range i - 1 {
		v.Mul(v, big.NewInt(int64(sequence)))
	}
	return new(big.Rat).SetInt(v)
}
