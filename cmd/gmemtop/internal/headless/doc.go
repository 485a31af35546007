// Package headless follows watched processes without a screen, and says in lines of text what happened.
package headless
