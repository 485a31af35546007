package tui

import tea "charm.land/bubbletea/v2"

// inbox holds what components have posted until the current message is handled.
type inbox struct{ waiting []tea.Msg }

// post queues a message to handle after the current one and before the next one from outside.
func (b *inbox) post(msg tea.Msg) {
	if msg != nil {
		b.waiting = append(b.waiting, msg)
	}
}

// next takes the message that has waited longest.
func (b *inbox) next() (msg tea.Msg, ok bool) {
	if len(b.waiting) == 0 {
		return nil, false
	}
	msg, b.waiting = b.waiting[0], b.waiting[1:]
	return msg, true
}
