// Package sites says where memory comes from: the call site and the module of every stack, and what is alive
// at a moment grouped by them, as a tree, or by a search.
package sites
