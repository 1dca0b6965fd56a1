package leak

import (
	"slices"
	"strings"
	"testing"
)

func TestSecretRules(t *testing.T) {
	a := func(n int) string { return strings.Repeat("aB3dE5gH7j", n/10+1)[:n] }
	for name, text := range map[string]string{
		"GitLab token": "glpat-" + a(20), "Anthropic key": "sk-ant-api03-" + a(40), "OpenAI key": "sk-proj-" + a(50), "Google API key": "AIza" + a(35),
		"Slack token": "xoxb-" + "123456789012-" + a(24), "Stripe key": "sk_live_" + a(24), "npm token": "npm_" + a(36), "PyPI token": "pypi-" + a(60),
		"Hugging Face token": "hf_" + a(34), "SendGrid key": "SG." + a(22) + "." + a(43), "Telegram bot token": "123456789:AA" + a(33),
		"Google OAuth secret": "GOCSPX-" + a(28), "Docker Hub token": "dckr_pat_" + a(27), "Vault token": "hvs." + a(30), "GitHub token": "github_pat_" + a(22) + "_" + a(59),
		"AWS secret key": `aws_secret_access_key = "` + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY" + `"`, "Databricks token": "dapi" + "0123456789abcdef0123456789abcdef",
		"password in a URL": "postgres://app:S3cr3tPassw0rd@db.example.com/x", "JSON web token": "eyJ" + a(20) + ".eyJ" + a(20) + "." + a(30),
		"assigned secret": `api_key: "` + "q8Zr2Lx9Tn4Vb7Kc1Wm5" + `"`, "Twilio key": "SK" + "0123456789abcdef0123456789abcdef", "Slack webhook": "https://hooks.slack.com/services/" + a(30),
	} {
		hits := NewScanner(nil).Scan(nil, []byte("x = "+text+"\n"))
		if !slices.ContainsFunc(hits, func(h Hit) bool { return h.Rule == name }) {
			t.Errorf("%s is not found: %v", name, hits)
		}
	}
	for _, text := range []string{
		`password := os.Getenv("PASSWORD")`, `token = "${TOKEN}"`, `secret: "aaaaaaaaaaaaaaaaaaaaaaaa"`, "https://example.com/a@b", "sk-learn is a library", "the AKIA prefix",
		"h1:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRS=", "commit 0123456789abcdef0123456789abcdef01234567", `"integrity": "sha512-` + a(86) + `=="`, "SKIP", "postgres://user:pass@localhost/x",
	} {
		if hits := NewScanner(nil).Scan(nil, []byte(text)); len(hits) != 0 {
			t.Errorf("%q is taken for a secret: %v", text, hits)
		}
	}
	for _, r := range rules {
		if r.expr() == nil || len(r.any) == 0 {
			t.Errorf("rule %s", r.name)
		}
	}
}
