package swap

// heap is a binary heap of candidates by score, the greatest on top, ties to the lower number.
type heap struct {
	id    []int32
	score []float64
}

func newHeap(n int) *heap { return &heap{id: make([]int32, 0, n), score: make([]float64, 0, n)} }

func (h *heap) len() int     { return len(h.id) }
func (h *heap) top() float64 { return h.score[0] }

func (h *heap) before(i, j int) bool {
	return h.score[i] > h.score[j] || h.score[i] == h.score[j] && h.id[i] < h.id[j]
}

func (h *heap) swap(i, j int) {
	h.id[i], h.id[j] = h.id[j], h.id[i]
	h.score[i], h.score[j] = h.score[j], h.score[i]
}

func (h *heap) push(id int32, score float64) {
	h.id, h.score = append(h.id, id), append(h.score, score)
	for i := len(h.id) - 1; i > 0 && h.before(i, (i-1)/2); i = (i - 1) / 2 {
		h.swap(i, (i-1)/2)
	}
}

func (h *heap) pop() (id int32, score float64) {
	id, score = h.id[0], h.score[0]
	last := len(h.id) - 1
	h.swap(0, last)
	h.id, h.score = h.id[:last], h.score[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return id, score
		}
		if child+1 < last && h.before(child+1, child) {
			child++
		}
		if !h.before(child, i) {
			return id, score
		}
		h.swap(i, child)
		i = child
	}
}
