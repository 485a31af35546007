package torchsnapshot

import "unsafe"

// Bytes that a row takes at the end, when both the rows and the columns of traces.Events are in memory.
const (
	eventBytes  = int64(unsafe.Sizeof(row{})) + 8 + 8 + 8 + 4 + 2 + 1 + 1
	detailBytes = 4 + 4 // of an event of a block of events with details
	// A detail or a frame is in a list and is a key of a map, whose slots are at least half full.
	mapFactor = 3
)

// room returns an error if more is held than the input's size allows.
func (f *fold) room() error {
	at := f.offset()
	if at/roomBytes == f.checked {
		return nil
	}
	f.checked = at / roomBytes
	if held := f.held(); held > freeBytes+roomFactor*at {
		return limitf("%d MiB of memory for the first %d MiB of the file", held>>20, (at+1<<20-1)>>20)
	}
	return nil
}

// held returns the bytes that the tables hold now, or while the largest of them moves to a larger place.
func (f *fold) held() int64 {
	total, largest := f.kept, int64(0)
	add := func(n int64) {
		total += n
		largest = max(largest, n)
	}
	total += int64(len(f.events.chunks)) * chunkRows * eventBytes
	for _, d := range f.events.details {
		if d != nil {
			total += chunkRows * detailBytes
		}
	}
	total += f.machine()
	total += f.stacks.reopened * 4
	add(bytesOf(f.segments) + bytesOf(f.segmentOf))
	add(bytesOf(f.blocks) + bytesOf(f.blockOf))
	add(bytesOf(f.blockLists))
	add(bytesOf(f.notes))
	add(bytesOf(f.traces))
	add(bytesOf(f.pools) * mapFactor)
	add(bytesOf(f.texts.arena) + bytesOf(f.texts.ends) + 2*bytesOf(f.texts.slots))
	add(int64(len(f.texts.ends)) * int64(unsafe.Sizeof("")))
	add(bytesOf(f.stacks.offsets) + bytesOf(f.stacks.ids) + 2*bytesOf(f.stacks.slots) +
		bytesOf(f.stacks.lists))
	add(bytesOf(f.frames.list) * mapFactor)
	add(bytesOf(f.frames.objects))
	add(bytesOf(f.details.list) * mapFactor)
	add(f.largest)
	return total + largest - f.largest
}
