module confine

go 1.26
