// Package headless follows watched processes without a screen. It says in lines of text what happened and
// what attaching would do, and has the tables of a run's ranks and of what was captured of them.
package headless
