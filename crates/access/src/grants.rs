//! What a caller may do, and where.

use crate::file::shown;
use crate::limits::GRANTS_MAX;
use crate::{InvalidPrefix, Prefix, Scope};

/// Why a text grants nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidGrant {
    /// A scope that there is not.
    #[error(
        "`{0}` is no scope: `read`, `write` or `admin`, with a prefix of its own as in `read:/ds/docs` or without"
    )]
    Scope(String),
    /// A prefix that is none.
    #[error("`{text}`: {error}")]
    Prefix {
        /// The text.
        text: String,
        /// What is wrong with it.
        error: InvalidPrefix,
    },
    /// More than [`GRANTS_MAX`].
    #[error("more than {GRANTS_MAX} scopes and prefixes")]
    TooMany,
}

/// Scopes, each for a place and all below it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grants(Vec<(Scope, Prefix)>);

impl Grants {
    /// Everything, everywhere.
    pub fn everything() -> Self {
        Self(vec![(Scope::Admin, Prefix::everything())])
    }

    /// One scope, everywhere.
    pub fn of(scope: Scope) -> Self {
        Self(vec![(scope, Prefix::everything())])
    }

    /// Reads scopes as they are written: `read` is for the prefixes that stand beside it, `read:/ds/docs` for its own.
    /// Without prefixes beside it, a scope without one of its own is for everything.
    pub fn parse<'a>(
        scopes: impl IntoIterator<Item = &'a str>,
        prefixes: Option<&[Prefix]>,
    ) -> Result<Self, InvalidGrant> {
        let mut grants = Self::default();
        for text in scopes {
            let (name, own) = text.split_once(':').map_or((text, None), |(name, own)| (name, Some(own)));
            let scope = Scope::parse(name).ok_or_else(|| InvalidGrant::Scope(shown(text)))?;
            match (own, prefixes) {
                (Some(own), _) => grants.add(scope, parse_prefix(own)?)?,
                (None, None) => grants.add(scope, Prefix::everything())?,
                (None, Some(prefixes)) => {
                    for prefix in prefixes {
                        grants.add(scope, prefix.clone())?;
                    }
                }
            }
        }
        Ok(grants)
    }

    fn add(&mut self, scope: Scope, prefix: Prefix) -> Result<(), InvalidGrant> {
        if self.0.len() >= GRANTS_MAX {
            return Err(InvalidGrant::TooMany);
        }
        self.0.push((scope, prefix));
        Ok(())
    }

    /// Whether it may do something at a place.
    pub fn may(&self, scope: Scope, place: &str) -> bool {
        self.0.iter().any(|(granted, prefix)| granted.includes(scope) && prefix.covers(place))
    }

    /// Whether there is anything that it may do at a place or below it.
    pub fn may_something(&self, place: &str) -> bool {
        let is_below = |prefix: &Prefix| {
            prefix.as_str().strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.0.iter().any(|(_, prefix)| prefix.covers(place) || is_below(prefix))
    }

    /// Whether it may do nothing at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What either allows.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let added = other.0.iter().filter(|grant| !self.0.contains(grant));
        Self(self.0.iter().chain(added).cloned().collect())
    }

    /// What both allow.
    #[must_use]
    pub fn within(&self, ceiling: &Self) -> Self {
        let mut both = Vec::new();
        for (scope, prefix) in &self.0 {
            for (most, outer) in &ceiling.0 {
                let Some(scope) = scope.both(*most) else { continue };
                let narrower = if outer.covers(prefix.as_str()) {
                    prefix
                } else if prefix.covers(outer.as_str()) {
                    outer
                } else {
                    continue;
                };
                let grant = (scope, narrower.clone());
                if !both.contains(&grant) {
                    both.push(grant);
                }
            }
        }
        Self(both)
    }
}

/// Reads a prefix, with its text in the error.
pub(crate) fn parse_prefix(text: &str) -> Result<Prefix, InvalidGrant> {
    Prefix::parse(text).map_err(|error| InvalidGrant::Prefix { text: shown(text), error })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grants(text: &str) -> Grants {
        Grants::parse(text.split(' ').filter(|word| !word.is_empty()), None).unwrap()
    }

    #[test]
    fn a_scope_has_its_own_prefix_or_those_beside_it() {
        let beside = [Prefix::parse("/ds/a").unwrap(), Prefix::parse("/ds/b").unwrap()];
        let mixed = Grants::parse(["read", "write:/ds/c"], Some(&beside)).unwrap();
        assert!(mixed.may(Scope::Read, "/ds/a/x") && mixed.may(Scope::Read, "/ds/b"));
        assert!(mixed.may(Scope::Write, "/ds/c/x"));
        assert!(!mixed.may(Scope::Read, "/ds/c/x") && !mixed.may(Scope::Write, "/ds/a"));
        // An empty list of prefixes is not the same as none.
        assert!(Grants::parse(["read"], Some(&[])).unwrap().is_empty());
        assert!(grants("read").may(Scope::Read, "/anything"));
        assert!(Grants::parse(["reader"], None).is_err() && Grants::parse(["read:ds"], None).is_err());
    }

    #[test]
    fn writing_is_not_reading_and_admin_is_both() {
        assert!(!grants("write").may(Scope::Read, "/x") && !grants("read").may(Scope::Write, "/x"));
        assert!(!grants("read write").may(Scope::Admin, "/x"));
        for scope in Scope::ALL {
            assert!(grants("admin:/ds").may(scope, "/ds/x") && !grants("admin:/ds").may(scope, "/x"));
        }
    }

    #[test]
    fn something_is_allowed_above_and_below_a_place() {
        let some = grants("read:/feeds/v1/spaces/a");
        assert!(some.may_something("/feeds/v1/spaces") && some.may_something("/feeds/v1/spaces/a"));
        assert!(some.may_something("") && some.may_something("/feeds/v1/spaces/a/b"));
        assert!(!some.may_something("/feeds/v1/spaces/ab") && !some.may_something("/ds"));
        assert!(!Grants::default().may_something(""));
    }

    fn any_grants() -> impl Strategy<Value = Grants> {
        let grant = (prop::sample::select(vec!["read", "write", "admin"]), "(/[ab]){0,3}/");
        let texts =
            prop::collection::vec(grant.prop_map(|(scope, prefix)| format!("{scope}:{prefix}")), 0..4);
        texts.prop_map(|texts| Grants::parse(texts.iter().map(String::as_str), None).unwrap())
    }

    proptest! {
        /// What two allow together is what each of them allows, for every scope and place.
        #[test]
        fn a_ceiling_takes_away_exactly_what_is_above_it(
            one in any_grants(), other in any_grants(), place in "(/[ab]){0,4}",
        ) {
            for scope in Scope::ALL {
                let both = one.may(scope, &place) && other.may(scope, &place);
                prop_assert_eq!(one.within(&other).may(scope, &place), both);
                prop_assert_eq!(other.within(&one).may(scope, &place), both);
                let either = one.may(scope, &place) || other.may(scope, &place);
                prop_assert_eq!(one.with(&other).may(scope, &place), either);
            }
        }

        /// Something is allowed at or below a place if some scope is at some place there.
        #[test]
        fn something_is_allowed_where_a_scope_is(one in any_grants(), place in "(/[ab]){0,2}") {
            let mut places = vec![place.clone()];
            for _ in 0..3 {
                let deeper: Vec<String> =
                    places.iter().flat_map(|at| [at.clone(), format!("{at}/a"), format!("{at}/b")]).collect();
                places = deeper;
            }
            let model = places.iter().any(|at| Scope::ALL.iter().any(|scope| one.may(*scope, at)));
            prop_assert_eq!(one.may_something(&place), model);
        }
    }
}
