//! The programs that read accounts, and the steps that let each of them do so. The recipes in
//! docs/recipes say more, and how far each was tried.

/// A program, by the name of its key.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// In the page's address.
    pub(super) id: &'static str,
    /// What it does with the accounts.
    pub(super) gives: &'static str,
    pub(super) takes: Takes,
    /// What to do with the secret, or with the file.
    pub(super) steps: &'static [Step],
    /// What to know before. Empty: nothing.
    pub(super) note: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// A setup token, which it claims once.
    SetupToken,
    Key,
    /// A file that the user saves.
    Transactions,
    /// A file of one account.
    Ofx,
}

pub(super) struct Step {
    text: &'static str,
    /// What to copy in this step.
    pub(super) copy: Option<Copy>,
}

/// What a user copies, which has the secret in its place.
#[derive(Clone, Copy)]
pub(super) enum Copy {
    Secret,
    ApiUrl,
    Header,
    /// The script of docs/recipes/sheet.gs.
    SheetScript,
    /// The query of docs/recipes/excel.pq.
    ExcelQuery,
    ClaudeCommand,
    McpAddress,
    McpCommand,
    Curl,
}

/// Programs of one kind.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) programs: &'static [Program],
}

const fn step(text: &'static str) -> Step {
    Step { text, copy: None }
}

const fn copy(text: &'static str, copy: Copy) -> Step {
    Step {
        text,
        copy: Some(copy),
    }
}

pub(super) const GROUPS: &[Group] = &[
    Group {
        name: "Budgets and books",
        programs: &[
            Program {
                name: "Actual Budget",
                id: "actual",
                gives: "Your bank accounts with their balances, and new transactions when you press Bank Sync.",
                takes: Takes::SetupToken,
                steps: &[
                    step("In Actual, choose Add account, then Set up bank sync."),
                    copy(
                        "Press Set up in the card SimpleFIN, and paste this token within an hour:",
                        Copy::Secret,
                    ),
                    step(
                        "Press Link bank account in the same card, and link the accounts of one currency only, because \
                         Actual has no currencies.",
                    ),
                    step("Press Bank Sync."),
                ],
                note: "Actual's sync server has to reach this service. Its dialog says that it is for North American \
                     banks, which is about SimpleFIN's own service.",
            },
            Program {
                name: "GnuCash",
                id: "gnucash",
                gives: "The transactions of one account as an OFX file. GnuCash recognises what you imported before.",
                takes: Takes::Ofx,
                steps: &[
                    step("Save a file for each account:"),
                    step("In GnuCash, choose File, Import, Import OFX/QFX, and choose the file."),
                    step(
                        "Choose GnuCash's account for it, which it remembers, and confirm the transactions.",
                    ),
                ],
                note: "Let the files overlap by a week, so that nothing is missed.",
            },
        ],
    },
    Group {
        name: "Spreadsheets",
        programs: &[
            Program {
                name: "Google Sheets",
                id: "sheets",
                gives: "A sheet with the transactions of the last 90 days, renewed by a menu or each morning.",
                takes: Takes::Key,
                steps: &[
                    copy(
                        "In the sheet, choose Extensions, Apps Script, and replace the code by this script:",
                        Copy::SheetScript,
                    ),
                    copy(
                        "In Project settings, add the script property BELLBIRD_URL with this address:",
                        Copy::ApiUrl,
                    ),
                    copy(
                        "Add a second one, BELLBIRD_KEY, with this key:",
                        Copy::Secret,
                    ),
                    step(
                        "Run refresh once, and allow what Google asks. Then reload the sheet: it has a menu Bellbird.",
                    ),
                    step("For each morning, add a trigger for refresh that is driven by time."),
                ],
                note: "The script runs at Google, so this service has to be reachable from the internet, and Google \
                     sees the transactions.",
            },
            Program {
                name: "Excel",
                id: "excel",
                gives: "A table with the transactions of the last 90 days, which Refresh All renews.",
                takes: Takes::Key,
                steps: &[
                    step(
                        "Choose Data, Get Data, From Other Sources, Blank Query, then Advanced Editor.",
                    ),
                    copy(
                        "Replace what is there by this query, which has the key in it:",
                        Copy::ExcelQuery,
                    ),
                    step(
                        "When Excel asks how to sign in, choose Anonymous, because the key is in the query.",
                    ),
                    step("Choose Close & Load."),
                ],
                note: "Whoever gets the workbook gets the key. Revoke it before you share the file.",
            },
            Program {
                name: "LibreOffice",
                id: "libreoffice",
                gives: "Your transactions as a file, which LibreOffice Calc opens.",
                takes: Takes::Transactions,
                steps: &[
                    step("Open Transactions, choose accounts and days, and download the CSV file."),
                    step(
                        "Open it in LibreOffice. Choose Unicode (UTF-8) and the comma, and leave Evaluate formulas off.",
                    ),
                    step(
                        "For a sheet that stays linked to the file, choose Sheet, External Links, and the file.",
                    ),
                ],
                note: "",
            },
        ],
    },
    Group {
        name: "Assistants",
        programs: &[
            Program {
                name: "Claude Code",
                id: "claude",
                gives: "It answers questions about your accounts, such as what you spent on food. It only reads.",
                takes: Takes::Key,
                steps: &[
                    copy("Run this command in a terminal:", Copy::ClaudeCommand),
                    step("Start Claude Code, and ask: what did I spend last month, by category?"),
                ],
                note: "The assistant's maker sees the transactions that it reads.",
            },
            Program {
                name: "Another assistant",
                id: "assistant",
                gives: "Any other assistant that speaks MCP can answer questions about your accounts. It only reads.",
                takes: Takes::Key,
                steps: &[
                    copy(
                        "If the assistant takes an address and a header, put this into its settings of MCP servers:",
                        Copy::McpAddress,
                    ),
                    copy(
                        "If it starts programs instead, put this there. It needs the program bellbird on that computer:",
                        Copy::McpCommand,
                    ),
                    step("Ask: what did I spend last month, by category?"),
                ],
                note: "An assistant that takes only an address, and wants you to sign in there, cannot use the first \
                     one. The assistant's maker sees the transactions that it reads.",
            },
        ],
    },
    Group {
        name: "Home and your own programs",
        programs: &[
            Program {
                name: "Home Assistant",
                id: "home-assistant",
                gives: "A sensor with the balance of each account, read every four hours.",
                takes: Takes::SetupToken,
                steps: &[
                    step(
                        "In Home Assistant, open Settings, Devices & services, and press Add integration.",
                    ),
                    copy(
                        "Choose SimpleFIN, and paste this token within an hour:",
                        Copy::Secret,
                    ),
                ],
                note: "Home Assistant has to reach this service, also from its container.",
            },
            Program {
                name: "My program",
                id: "own",
                gives: "Everything, as JSON with exact decimals.",
                takes: Takes::Key,
                steps: &[
                    copy(
                        "Send the key with each request, in this header:",
                        Copy::Header,
                    ),
                    copy("Try it:", Copy::Curl),
                    step(
                        "Read the reference, which shows each call with samples in TypeScript and Python.",
                    ),
                ],
                note: "",
            },
        ],
    },
];

impl Step {
    /// Before there is something to copy, the text leads to nothing.
    pub(super) fn text(&self, is_made: bool) -> String {
        match self.text.strip_suffix(':') {
            Some(text) if !is_made && self.copy.is_some() => format!("{text}."),
            _ => self.text.to_owned(),
        }
    }
}

impl Program {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        let mut all = GROUPS.iter().flat_map(|group| group.programs);
        all.find(|program| program.name == name && program.takes.is_secret())
    }
}

impl Takes {
    /// Whether something is made for the program, and shown once.
    pub(super) fn is_secret(self) -> bool {
        matches!(self, Self::SetupToken | Self::Key)
    }

    pub(super) fn is_token(self) -> bool {
        self == Self::SetupToken
    }
}

impl Copy {
    /// The text to copy. `api_url` is without a trailing slash.
    pub(super) fn text(self, api_url: &str, secret: &str) -> String {
        match self {
            Self::Secret => secret.to_owned(),
            Self::ApiUrl => api_url.to_owned(),
            Self::Header => format!("Authorization: Bearer {secret}"),
            Self::SheetScript => include_str!("../../../../docs/recipes/sheet.gs").to_owned(),
            Self::ExcelQuery => include_str!("../../../../docs/recipes/excel.pq")
                .replace("https://bellbird.example.com", api_url)
                .replace("bb_...", secret),
            Self::ClaudeCommand => format!(
                "claude mcp add --transport http bellbird {api_url}/mcp --header \"Authorization: Bearer {secret}\""
            ),
            Self::McpAddress => format!(
                "{{\"mcpServers\": {{\"bellbird\": {{\n  \"type\": \"http\", \"url\": \"{api_url}/mcp\",\n  \
                 \"headers\": {{\"Authorization\": \"Bearer {secret}\"}}}}}}}}"
            ),
            Self::McpCommand => format!(
                "{{\"mcpServers\": {{\"bellbird\": {{\n  \"command\": \"bellbird\", \"args\": [\"mcp\"],\n  \
                 \"env\": {{\"BELLBIRD_URL\": \"{api_url}\", \"BELLBIRD_KEY\": \"{secret}\"}}}}}}}}"
            ),
            Self::Curl => {
                format!("curl -H \"Authorization: Bearer {secret}\" {api_url}/v1/accounts")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bellbird_management::values::KeyName;

    use super::*;

    #[test]
    fn texts_have_the_secret_in_its_place() {
        let all = || GROUPS.iter().flat_map(|group| group.programs);
        for program in all().filter(|program| program.takes.is_secret()) {
            let copies = program.steps.iter().filter_map(|step| step.copy);
            let texts: Vec<_> = copies
                .map(|copy| copy.text("https://bank.example", "bb_secret"))
                .collect();
            assert!(
                texts.iter().any(|text| text.contains("bb_secret")),
                "{}: {texts:?}",
                program.name
            );
            for text in &texts {
                assert!(!text.contains("bb_..."), "{}: {text}", program.name);
            }
            assert!(program.name.parse::<KeyName>().is_ok());
        }
        let ids: std::collections::BTreeSet<_> = all().map(|program| program.id).collect();
        assert_eq!(ids.len(), all().count());
        for json in [Copy::McpAddress, Copy::McpCommand] {
            let text = json.text("https://bank.example", "bb_secret");
            assert!(
                serde_json::from_str::<serde_json::Value>(&text).is_ok(),
                "{text}"
            );
        }
    }
}
