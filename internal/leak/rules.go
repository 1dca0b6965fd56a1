package leak

import (
	"regexp"
	"sync"
)

// rule is the form of one kind of credential.
type rule struct {
	name string
	// any lists literals of which a text must hold one before the expression is
	// tried: searching them is fast. They are in lower case where fold is set,
	// as the text is then.
	any  []string
	fold bool
	expr func() *regexp.Regexp
	// group is the part of the match that is the secret.
	group int
	// entropy is the least number of bits per character of the secret, where
	// the form alone says little.
	entropy float64
	// weak rules ask for an approval instead of refusing.
	weak bool
}

// mustExpr compiles an expression at its first use: most starts of the program
// never scan anything. A test compiles all of them.
func mustExpr(s string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(s) })
}

// rules are forms that issuers publish so that scanners know them, and two
// of assignments. What a form must hold fits the overlap of two windows.
var rules = []rule{
	{name: "AWS access key id", any: []string{"AKIA", "ASIA", "ABIA", "ACCA"}, expr: mustExpr(`(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7][A-Z0-9]{15}`)},
	{name: "AWS secret key", any: []string{"aws"}, fold: true, expr: mustExpr(`aws.{0,30}(?:secret|key).{0,20}?[=:>"' ]{1,5}([a-z0-9/+]{40})(?:[^a-z0-9/+=]|$)`), group: 1, entropy: 3.5},
	{name: "GitHub token", any: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"}, expr: mustExpr(`\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59})`)},
	{name: "GitLab token", any: []string{"glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-"}, expr: mustExpr(`\bgl(?:pat|dt|rt|cbt|ptt|ft|soat|agent)-[A-Za-z0-9_.-]{20,}`)},
	{name: "Anthropic key", any: []string{"sk-ant-"}, expr: mustExpr(`\bsk-ant-[A-Za-z0-9_-]{24,}`)},
	{name: "OpenAI key", any: []string{"sk-"}, expr: mustExpr(`\bsk-(?:(?:proj|svcacct|admin|service)-[A-Za-z0-9_-]{40,}|[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}|[A-Za-z0-9]{48})`)},
	{name: "Google API key", any: []string{"AIza"}, expr: mustExpr(`\bAIza[0-9A-Za-z_-]{35}`)},
	{name: "Google OAuth secret", any: []string{"GOCSPX-", "ya29."}, expr: mustExpr(`\b(?:GOCSPX-[A-Za-z0-9_-]{28}|ya29\.[A-Za-z0-9_-]{30,})`)},
	{name: "Slack token", any: []string{"xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe", "xapp-"}, expr: mustExpr(`\b(?:xox[baprse](?:\.xox[bp])?-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{20,})`)},
	{name: "Slack webhook", any: []string{"hooks.slack.com"}, expr: mustExpr(`hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,}`)},
	{name: "Discord webhook", any: []string{"/api/webhooks/"}, expr: mustExpr(`discord(?:app)?\.com/api/webhooks/\d{15,22}/[A-Za-z0-9_-]{40,}`)},
	{name: "Stripe key", any: []string{"_live_", "whsec_"}, expr: mustExpr(`\b(?:[sr]k_live_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,})`)},
	{name: "npm token", any: []string{"npm_"}, expr: mustExpr(`\bnpm_[A-Za-z0-9]{36}`)},
	{name: "PyPI token", any: []string{"pypi-"}, expr: mustExpr(`\bpypi-[A-Za-z0-9_-]{50,}`)},
	{name: "RubyGems token", any: []string{"rubygems_"}, expr: mustExpr(`\brubygems_[a-f0-9]{48}`)},
	{name: "crates.io token", any: []string{"cio"}, expr: mustExpr(`\bcio[A-Za-z0-9]{32}\b`), entropy: 3.5},
	{name: "Docker Hub token", any: []string{"dckr_pat_", "dckr_oat_"}, expr: mustExpr(`\bdckr_[po]at_[A-Za-z0-9_-]{27,40}`)},
	{name: "Hugging Face token", any: []string{"hf_"}, expr: mustExpr(`\bhf_[A-Za-z0-9]{34,40}\b`)},
	{name: "DigitalOcean token", any: []string{"dop_v1_", "doo_v1_", "dor_v1_"}, expr: mustExpr(`\bdo[opr]_v1_[a-f0-9]{64}`)},
	{name: "SendGrid key", any: []string{"SG."}, expr: mustExpr(`\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}`)},
	{name: "Twilio key", any: []string{"SK"}, expr: mustExpr(`\bSK[0-9a-f]{32}\b`)},
	{name: "Mailgun key", any: []string{"key-"}, expr: mustExpr(`\bkey-[0-9a-f]{32}\b`)},
	{name: "Telegram bot token", any: []string{":AA"}, expr: mustExpr(`\b\d{8,10}:AA[A-Za-z0-9_-]{33}\b`)},
	{name: "Shopify token", any: []string{"shpat_", "shpca_", "shppa_", "shpss_"}, expr: mustExpr(`\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}`)},
	{name: "Databricks token", any: []string{"dapi"}, expr: mustExpr(`\bdapi[0-9a-f]{32}(?:-\d)?\b`)},
	{name: "Atlassian token", any: []string{"ATATT3"}, expr: mustExpr(`\bATATT3[A-Za-z0-9_=-]{60,}`)},
	{name: "Azure storage key", any: []string{"AccountKey="}, expr: mustExpr(`AccountKey=([A-Za-z0-9+/]{80,88}={0,2})`), group: 1},
	{name: "Vault token", any: []string{"hvs.", "hvb.", "hvr."}, expr: mustExpr(`\bhv[sbr]\.[A-Za-z0-9_-]{24,}`)},
	{name: "age key", any: []string{"AGE-SECRET-KEY-1"}, expr: mustExpr(`AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{40,58}`)},
	{name: "private key", any: []string{"PRIVATE KEY"}, expr: mustExpr(`-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----`)},
	{name: "private key", any: []string{"PuTTY-User-Key-File"}, expr: mustExpr(`PuTTY-User-Key-File-\d: `)},
	{name: "password in a URL", any: []string{"://"}, expr: mustExpr(`\b[a-zA-Z][a-zA-Z0-9+.-]{1,15}://[^\s/:@"'<>{}$]{1,64}:([^\s/:@"'<>{}$]{8,})@[A-Za-z0-9.-]{1,}`), group: 1, entropy: 3, weak: true},
	{name: "JSON web token", any: []string{"eyJ"}, expr: mustExpr(`\beyJ[A-Za-z0-9_-]{15,}\.eyJ[A-Za-z0-9_-]{15,}\.[A-Za-z0-9_-]{20,}`), weak: true},
	{
		name: "assigned secret", any: []string{"secret", "token", "password", "passwd", "api_key", "apikey", "api-key", "access_key", "private_key", "auth_key"}, fold: true,
		expr:  mustExpr(`(?:secret|token|password|passwd|api[_-]?key|access_key|private_key|auth_key)[a-z0-9_-]{0,20}["']?\s{0,4}(?::=|=>|=|:)\s{0,4}["']([^\s"'` + "`" + `$<>{}()]{16,})["']`),
		group: 1, entropy: 3.7, weak: true,
	},
}
