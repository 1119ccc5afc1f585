//! Settings: what options are when the command line does not say, from files and variables.
//!
//! Given the command line's types and the environment; gives the same types with other defaults,
//! and for each of these where it was said. A file is a TOML document: a key of its top level is
//! the long name of an option of every command that has it, one in a table named as a command is
//! that command's alone. Must not know what an option means, and prints nothing.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file of the machine.
const OF_ALL: &str = "/etc/sptrace/config.toml";
/// Variables that are no settings of options, for those who look for misspelt ones.
pub const OTHER_VARIABLES: [&str; 4] = [
    "SPTRACE_CONFIG",
    "SPTRACE_LOG",
    "SPTRACE_PATH",
    "SPTRACE_COMPLETE",
];
/// Commands that work whatever the settings are.
const WITHOUT: [&str; 3] = ["config", "doctor", "help"];

/// Where a setting was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a file, on this line.
    Line(PathBuf, usize),
    /// By a variable of the environment.
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "{name}"),
        }
    }
}

/// One option of one command, set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The command.
    pub command: String,
    /// The option's long name.
    pub option: String,
    /// Its values: one, or several of an option that is repeatable.
    pub values: Vec<String>,
    /// Where that was said.
    pub origin: Origin,
}

/// A file that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is not there.
    Absent,
    /// So many settings were read.
    Read(usize),
    /// It is not used, for this reason.
    Distrusted(&'static str),
}

/// All that was found.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What is in force; of one option only what counts.
    pub all: Vec<Setting>,
    /// Files, in the order in which they are read: the later ones count more.
    pub files: Vec<(PathBuf, Found)>,
    /// Variables that begin as ours do, and name nothing.
    pub unknown: Vec<String>,
}

/// A file that cannot be used: one line that says where and why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

/// The environment, as `std::env::var_os` gives it.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the files, then the variables `names`.
///
/// # Errors
/// A file that is there cannot be read, is no TOML, or names what is not there.
pub fn read(
    command: &Command,
    variable: Variable<'_>,
    names: &[String],
) -> Result<Settings, SettingsError> {
    let mut settings = Settings::default();
    for path in files(variable) {
        let is_named = variable("SPTRACE_CONFIG").is_some_and(|named| path == Path::new(&named));
        let found = match trusted(&path) {
            Ok(true) => {
                log::debug!("settings of {}", path.display());
                Found::Read(of_file(command, &path, &mut settings)?)
            }
            Ok(false) if is_named => {
                let why = format!("{}: there is no such file (SPTRACE_CONFIG)", path.display());
                return Err(SettingsError(why));
            }
            Ok(false) => Found::Absent,
            Err(why) => Found::Distrusted(why),
        };
        settings.files.push((path, found));
    }
    of_variables(command, variable, names, &mut settings)?;
    Ok(settings)
}

/// The files, whether they are there or not.
fn files(variable: Variable<'_>) -> Vec<PathBuf> {
    let home = variable("HOME").map(|home| Path::new(&home).join(".config"));
    let of_user = variable("XDG_CONFIG_HOME").map(PathBuf::from).or(home);
    let of_user = of_user.filter(|folder| folder.is_absolute());
    let of_user = of_user.map(|folder| folder.join("sptrace/config.toml"));
    let named = variable("SPTRACE_CONFIG").filter(|path| !path.is_empty());
    let named = named.map(PathBuf::from);
    let all = std::iter::once(PathBuf::from(OF_ALL)).chain(of_user);
    all.chain(named).collect()
}

/// Whether it is there; Err: it is somebody else's, who could have us write files.
fn trusted(path: &Path) -> Result<bool, &'static str> {
    let Ok(meta) = std::fs::metadata(path) else {
        return Ok(false);
    };
    let own = std::fs::metadata("/proc/self").map_or(0, |own| own.uid());
    if meta.uid() != own && meta.uid() != 0 {
        return Err("not used: it belongs to another user");
    }
    if meta.is_file() && meta.mode() & 0o022 != 0 {
        return Err("not used: others may write it (chmod go-w)");
    }
    Ok(true)
}

fn of_file(
    command: &Command,
    path: &Path,
    settings: &mut Settings,
) -> Result<usize, SettingsError> {
    let of_whole = |why: String| SettingsError(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| of_whole(e.to_string()))?;
    let line = |at: usize| 1 + text.bytes().take(at).filter(|b| *b == b'\n').count();
    let wrong =
        |at: usize, why: &str| SettingsError(format!("{}:{}: {why}", path.display(), line(at)));
    let document = DeTable::parse(&text)
        .map_err(|e| wrong(e.span().map_or(0, |span| span.start), e.message()))?;
    let mut read = 0;
    let mut set =
        |name: &str, key: &Spanned<_>, value: &Spanned<DeValue<'_>>, set: &mut Settings| {
            let at = Spanned::span(key).start;
            let option: &std::borrow::Cow<'_, str> = key.get_ref();
            let values = values(value.get_ref()).map_err(|why| wrong(at, why))?;
            let origin = Origin::Line(path.to_owned(), line(at));
            let count = set
                .set(command, name, option, values, &origin)
                .map_err(|why| wrong(at, &why))?;
            read += count;
            Ok::<(), SettingsError>(())
        };
    // What is said of one command counts more, wherever it stands.
    for (key, value) in document.get_ref().iter() {
        if !matches!(value.get_ref(), DeValue::Table(_)) {
            set("", key, value, settings)?;
        }
    }
    for (key, value) in document.get_ref().iter() {
        let DeValue::Table(table) = value.get_ref() else {
            continue;
        };
        let name = key.get_ref();
        if command.find_subcommand(name.as_ref()).is_none() {
            let why = format!("there is no command {name}");
            return Err(wrong(key.span().start, &why));
        }
        for (key, value) in table.iter() {
            set(name, key, value, settings)?;
        }
    }
    Ok(read)
}

/// As words of a command line.
fn values(value: &DeValue<'_>) -> Result<Vec<String>, &'static str> {
    let one = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(flag) => Ok(flag.to_string()),
        _ => Err("a setting is a text, a number, true, false, or a list of these"),
    };
    match value {
        DeValue::Array(all) => all.iter().map(|value| one(value.get_ref())).collect(),
        value => Ok(vec![one(value)?]),
    }
}

fn of_variables(
    command: &Command,
    variable: Variable<'_>,
    names: &[String],
    settings: &mut Settings,
) -> Result<(), SettingsError> {
    let of_name = |name: &str| format!("SPTRACE_{}", name.replace('-', "_").to_uppercase());
    let mut known: Vec<String> = OTHER_VARIABLES.map(str::to_owned).to_vec();
    for sub in command.get_subcommands() {
        for option in sub.get_arguments().filter_map(Arg::get_long) {
            let own = of_name(&format!("{}_{option}", sub.get_name()));
            for (scope, name) in [("", of_name(option)), (sub.get_name(), own)] {
                known.push(name.clone());
                let Some(value) = variable(&name) else {
                    continue;
                };
                if scope.is_empty() && is_left_to_table(sub.get_name(), option) {
                    continue;
                }
                let origin = Origin::Variable(name.clone());
                settings
                    .set(command, sub.get_name(), option, vec![value], &origin)
                    .map_err(|why| SettingsError(format!("{name}: {why}")))?;
            }
        }
    }
    let ours = |name: &&String| name.starts_with("SPTRACE_") && !known.contains(name);
    settings.unknown = names.iter().filter(ours).cloned().collect();
    Ok(())
}

/// The file that a report is written to is nothing that all commands have in common, though its
/// option is called as that of recordings.
fn is_left_to_table(command: &str, option: &str) -> bool {
    option == "output" && command == "report"
}

impl Settings {
    /// Sets an option of one command, or of all that have it (`name` is empty). Gives for how
    /// many; Err: why that is none.
    fn set(
        &mut self,
        command: &Command,
        name: &str,
        option: &str,
        values: Vec<String>,
        origin: &Origin,
    ) -> Result<usize, String> {
        let mut count = 0;
        for sub in command.get_subcommands() {
            let of_all = name.is_empty() && !is_left_to_table(sub.get_name(), option);
            if !of_all && sub.get_name() != name {
                continue;
            }
            let arg = sub.get_arguments().find(|a| a.get_long() == Some(option));
            let Some(arg) = arg.filter(|_| !WITHOUT.contains(&sub.get_name())) else {
                continue;
            };
            if !arg.get_action().takes_values() && !matches!(arg.get_action(), ArgAction::Count) {
                for value in &values {
                    flag(value).ok_or_else(|| format!("{option} is true or false"))?;
                }
            }
            let is_same = |s: &Setting| s.command == sub.get_name() && s.option == option;
            self.all.retain(|s| !is_same(s));
            self.all.push(Setting {
                command: sub.get_name().to_owned(),
                option: option.to_owned(),
                values: values.clone(),
                origin: origin.clone(),
            });
            count += 1;
        }
        match (count, name) {
            (0, "") => Err(format!("no command has an option --{option}")),
            (0, name) => Err(format!("sptrace {name} has no option --{option}")),
            _ => Ok(count),
        }
    }

    /// The command line's types with the settings as defaults. What `explicit`, the matches of the
    /// same command line without settings, shows to be said and to conflict with one, counts more.
    pub fn apply(&self, mut command: Command, explicit: Option<&ArgMatches>) -> Command {
        // What has been built cannot be changed any more.
        let mut built = command.clone();
        built.build();
        for setting in &self.all {
            let Some(sub) = built.find_subcommand(&setting.command) else {
                continue;
            };
            let arg = sub
                .get_arguments()
                .find(|a| a.get_long() == Some(&setting.option));
            let Some(arg) = arg.cloned() else { continue };
            let said = explicit.and_then(ArgMatches::subcommand);
            let said = said.filter(|(name, _)| *name == setting.command);
            let is_said = |other: &Arg| {
                let source = said.map(|(_, m)| m.value_source(other.get_id().as_str()));
                source == Some(Some(ValueSource::CommandLine))
            };
            if sub.get_arg_conflicts_with(&arg).into_iter().any(is_said) {
                continue;
            }
            let values = setting.values.clone();
            command = command.mut_subcommand(&setting.command, |sub| {
                sub.mut_arg(arg.get_id().as_str(), |a| default_of(a, values))
            });
        }
        command
    }

    /// What was said of an option that clap complains of.
    pub fn origin_of(&self, command: &str, option: &str) -> Option<&Origin> {
        let is_it = |s: &&Setting| s.command == command && s.option == option;
        self.all.iter().find(is_it).map(|s| &s.origin)
    }
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "1" | "true" | "yes" | "on" => Some(true),
        "" | "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn default_of(arg: Arg, values: Vec<String>) -> Arg {
    let is_flag = matches!(arg.get_action(), ArgAction::SetTrue);
    // clap keeps defaults for as long as the process lives.
    let leak = |text: String| -> &'static OsStr { OsStr::new(Box::leak(text.into_boxed_str())) };
    if is_flag {
        let is_set = values.first().and_then(|value| flag(value)) == Some(true);
        return arg.default_value(if is_set { "true" } else { "false" });
    }
    arg.default_values(values.into_iter().map(leak).collect::<Vec<_>>())
}
