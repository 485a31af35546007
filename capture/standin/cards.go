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
	Memory     int64
	Capability [2]int // compute capability
	Processors int    // streaming multiprocessors
}

var tabled = regexp.MustCompile(`\{"([\w-]+)",\s*"([^"]+)",\s*gib\(([\d.]+)\),\s*gib\([\d.]+\),` +
	`\s*(\d+),\s*(\d+),\s*(\d+),`)

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
		var numbers [3]int
		for i := range numbers {
			if numbers[i], err = strconv.Atoi(string(m[4+i])); err != nil {
				panic(err)
			}
		}
		all = append(all, Card{m[1], m[2], int64(gib*1024) << 20, [2]int{numbers[0], numbers[1]}, numbers[2]})
	}
	return all
})

// CardNamed finds a card by its model or by its name, as drivers and people write them: "NVIDIA GeForce RTX
// 4090", "rtx-4090" and "4090" are the same.
func CardNamed(name string) (Card, bool) {
	for _, c := range Cards() {
		if key := plain(name); key != "" && (key == plain(c.Model) || key == plain(c.Name)) {
			return c, true
		}
	}
	return Card{}, false
}

var vendor = regexp.MustCompile(`nvidia|geforce|quadro|tesla|rtx|[^a-z0-9]`)

// plain is a card's name without its vendor's words.
func plain(name string) string { return vendor.ReplaceAllString(strings.ToLower(name), "") }
