package fleet

import "testing"

// Any character may be part of a machine's name.
func TestWhatIsLeftBesideACommandNamesItsNode(t *testing.T) {
	id := Identity{Node: "rack:7"}
	machine, name, path := readNote(id.Note("/shared/a b.join"))
	if machine != id.Node || name != id.NodeName() || path != "/shared/a b.join" {
		t.Errorf("machine %q, node %q, join file %q", machine, name, path)
	}
	if _, _, path := readNote(""); path != "" {
		t.Errorf("a command without a hub has the join file %q", path)
	}
}
