module github.com/gmemtop/gmemtop

go 1.26
