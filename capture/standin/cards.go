package standin

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Card is a model that the stand-in can imitate.
type Card struct {
	Model string // the value of Machine.Model, such as "h100"
	Name  string // the driver's name for it, such as "NVIDIA H100 80GB HBM3"
	// Memory is the memory that PyTorch finds on it, in bytes.
	Memory int64
}

var tabled = regexp.MustCompile(`\{"([\w-]+)",\s*"([^"]+)",\s*gib\(([\d.]+)\)`)

// Cards returns the models of real cards, read from src/cards.cpp, in its order.
var Cards = sync.OnceValue(func() []Card {
	source, err := sources.ReadFile("src/cards.cpp")
	if err != nil {
		panic(err) // it is embedded
	}
	var all []Card
	for _, m := range tabled.FindAllStringSubmatch(string(source), -1) {
		gib, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			panic(err)
		}
		all = append(all, Card{m[1], m[2], int64(gib*1024) << 20})
	}
	return all
})

// CardNamed finds a card by its model or by its name, in any case of letters.
func CardNamed(name string) (Card, bool) {
	for _, c := range Cards() {
		if strings.EqualFold(c.Model, name) || strings.EqualFold(c.Name, name) {
			return c, true
		}
	}
	return Card{}, false
}
