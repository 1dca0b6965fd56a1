// Package toolchains runs everyday programs inside the default boundary, unchanged:
// what works on the host has to work there, live and staged, as root and as an
// ordinary user. Each row of the table is a small real project and what its tools
// print. docs/reference/toolchains.md is made from the same table.
//
// What a row needs, scripts/setup installs. A row that fails inside is tried
// outside too, so that the failure says whose it is.
package toolchains
