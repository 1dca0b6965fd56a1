package leak

import "testing"

func TestSecretName(t *testing.T) {
	for _, name := range []string{"TOKEN", "GITHUB_TOKEN", "token", "Npm_Token", "GH-TOKEN", "TOKEN_FILE", "PGPASSWORD", "MYSQL_PWD", "AWS_SECRET_ACCESS_KEY",
		"AWS_ACCESS_KEY_ID", "SECRET_KEY_BASE", "MY_API_KEY", "APIKEY", "SSH_PRIVATE_KEY", "CREDENTIALS", "DB_PASSWD"} {
		if !SecretName(name) {
			t.Errorf("%s is not taken for the name of a secret", name)
		}
	}
	for _, name := range []string{"", "TOKENIZERS_PARALLELISM", "KEYBOARD", "MAX_TOKENS", "SECRETARY", "KEY", "KEY_COUNT", "MONKEY_API", "API_KEYBOARD", "PATH_INFO", "PASSENGER", "PWD", "PRIVATE", "ACCESS_LOG"} {
		if SecretName(name) {
			t.Errorf("%s is taken for the name of a secret", name)
		}
	}
}
