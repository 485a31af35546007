// Package sites says where memory comes from: the call site and the module of every stack, and the live
// allocations at a moment, grouped by these, as a tree, or as search results.
package sites
