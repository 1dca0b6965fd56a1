package leak

import (
	"slices"
	"strings"
)

// secretWords are words of a name that say that its value is a secret. A word
// is what stands between the underscores: TOKENIZERS and KEYBOARD hold none.
var secretWords = [][]string{
	{"TOKEN"}, {"SECRET"}, {"SECRETS"}, {"PASSWORD"}, {"PASSWORDS"}, {"PASSWD"}, {"PASSPHRASE"}, {"CREDENTIAL"}, {"CREDENTIALS"}, {"CREDS"},
	{"APIKEY"}, {"ACCESSKEY"}, {"PRIVATEKEY"}, {"PAT"},
	{"PRIVATE", "KEY"}, {"API", "KEY"}, {"ACCESS", "KEY"}, {"AUTH", "KEY"}, {"SIGNING", "KEY"}, {"DEPLOY", "KEY"}, {"SSH", "KEY"}, {"MASTER", "KEY"},
	{"ENCRYPTION", "KEY"}, {"ACCOUNT", "KEY"}, {"SERVICE", "KEY"}, {"MYSQL", "PWD"}, {"NETRC"},
}

// secretEnds are written without an underscore before them too, as in
// PGPASSWORD and GHTOKEN. No other words end so.
var secretEnds = []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY"}

// SecretName reports whether a variable of this name is meant to hold a secret.
func SecretName(name string) bool {
	words := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool { return r == '_' || r == '-' || r == '.' })
	for i, word := range words {
		if slices.ContainsFunc(secretEnds, func(end string) bool { return strings.HasSuffix(word, end) }) {
			return true
		}
		for _, secret := range secretWords {
			if i+len(secret) <= len(words) && slices.Equal(words[i:i+len(secret)], secret) {
				return true
			}
		}
	}
	return false
}

// Variable finds the first thing that looks like a secret in a variable. Forms
// that tell a secret by what it is assigned to are tried with the name as well.
func Variable(name, value string) (Hit, bool) {
	s := NewScanner(nil)
	if hits := s.Scan(nil, []byte(value)); len(hits) > 0 {
		return hits[0], true
	}
	for _, h := range s.Scan(nil, []byte(name+`="`+value+`"`)) {
		if !h.Weak {
			return h, true
		}
	}
	return Hit{}, false
}
