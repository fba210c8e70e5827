use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);

/// A group with the answers that came out of it, and a time that only the test moves.
struct Play {
    group: Group,
    now: Instant,
    next: u64,
    joined: BTreeMap<Ticket, Joined>,
    synced: BTreeMap<Ticket, Result<Synced, ResponseError>>,
}

impl Play {
    fn new() -> Self {
        Self::with(GroupSettings { initial_delay: Duration::ZERO, most_members: 10 })
    }

    fn with(settings: GroupSettings) -> Self {
        let (joined, synced) = (BTreeMap::new(), BTreeMap::new());
        Self { group: Group::new(settings), now: Instant::now(), next: 0, joined, synced }
    }

    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            let first = match action {
                Action::Joined(ticket, joined) => self.joined.insert(ticket, joined).is_none(),
                Action::Synced(ticket, synced) => self.synced.insert(ticket, synced).is_none(),
            };
            assert!(first, "somebody was answered twice");
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    fn join_with(&mut self, join: Join) -> Ticket {
        let ticket = self.ticket();
        let actions = self.group.join(join, ticket, self.now);
        self.take(actions);
        ticket
    }

    /// An old client that joins in one step as `name`, or comes back under this name.
    fn join(&mut self, name: &str) -> Ticket {
        let known = self.group.members.contains_key(name);
        let mut join = asking(name);
        if known {
            join.member_id = Arc::from(name);
        }
        self.join_with(join)
    }

    fn sync(&mut self, name: &str, assignments: &[(&str, &str)]) -> Ticket {
        let ticket = self.ticket();
        let assign = |&(name, what): &(&str, &str)| (Arc::from(name), Bytes::copy_from_slice(what.as_bytes()));
        let sync = Sync {
            generation: self.group.generation,
            member_id: Arc::from(name),
            instance: None,
            protocol_type: None,
            protocol: None,
            assignments: assignments.iter().map(assign).collect(),
        };
        let actions = self.group.sync(sync, ticket, self.now);
        self.take(actions);
        ticket
    }

    fn heartbeat(&mut self, name: &str) -> Result<(), ResponseError> {
        let generation = self.group.generation;
        self.group.heartbeat(&Arc::from(name), None, generation, self.now)
    }

    fn leave(&mut self, name: &str) -> Result<(), ResponseError> {
        let (actions, left) = self.group.leave(&Arc::from(name), None, self.now);
        self.take(actions);
        left
    }

    /// Time goes by; what falls due on the way is done when it does.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.group.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            let actions = self.group.expire(self.now);
            self.take(actions);
            assert!(self.group.next_deadline().is_none_or(|next| next > self.now), "what was due is done");
        }
        self.now = end;
    }

    fn assignment(&self, ticket: Ticket) -> &[u8] {
        &self.synced[&ticket].as_ref().unwrap().assignment
    }

    /// A group of these members, stable, with their names as their assignments.
    fn stable(names: &[&str]) -> Self {
        let mut play = Self::new();
        for name in names {
            play.join(name);
        }
        for name in names {
            play.join(name);
        }
        let assignments: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
        for name in names.iter().rev() {
            play.sync(name, &assignments);
        }
        assert_eq!(play.group.state(), StateName::Stable);
        assert_eq!(play.group.members.len(), names.len());
        play
    }
}

fn asking(name: &str) -> Join {
    Join {
        member_id: Arc::from(""),
        instance: None,
        new_id: Arc::from(name),
        client_id: "client".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout: SESSION,
        rebalance_timeout: REBALANCE,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::copy_from_slice(name.as_bytes()))],
        needs_known_id: false,
        knows_skipping: true,
    }
}

fn static_asking(name: &str, instance: &str) -> Join {
    Join { instance: Some(Arc::from(instance)), ..asking(name) }
}

#[test]
fn a_lone_member_leads_itself_and_gets_what_it_assigns() {
    let mut play = Play::new();
    let ticket = play.join("a");
    let joined = &play.joined[&ticket];
    assert_eq!((joined.error, joined.generation, &*joined.leader, &*joined.member_id), (None, 1, "a", "a"));
    assert_eq!((joined.protocol.as_deref(), joined.protocol_type.as_deref()), (Some("range"), Some("consumer")));
    assert_eq!(joined.members[0].metadata, "a");
    let ticket = play.sync("a", &[("a", "all"), ("nobody", "some")]);
    assert_eq!(play.assignment(ticket), b"all");
    assert_eq!(play.heartbeat("a"), Ok(()));
    play.leave("a").unwrap();
    assert!(play.group.is_over() && play.group.bytes() == 0);
}

#[test]
fn a_newcomer_calls_all_to_join_and_only_the_leader_hears_of_everybody() {
    let mut play = Play::stable(&["a"]);
    let b = play.join("b");
    assert!(!play.joined.contains_key(&b), "it waits for the other one");
    assert_eq!(play.heartbeat("a"), Err(ResponseError::RebalanceInProgress));
    let a = play.join("a");
    assert_eq!((play.joined[&a].members.len(), play.joined[&b].members.len()), (2, 0));
    assert_eq!(play.joined[&b].generation, play.joined[&a].generation);
    let b = play.sync("b", &[]);
    assert!(!play.synced.contains_key(&b), "it waits for the leader");
    let a = play.sync("a", &[("a", "1"), ("b", "2")]);
    assert_eq!((play.assignment(a), play.assignment(b)), (&b"1"[..], &b"2"[..]));
}

#[test]
fn whoever_does_not_come_back_within_the_rebalance_timeout_is_out() {
    let mut play = Play::stable(&["a", "b"]);
    let c = play.join("c");
    let a = play.join("a");
    for _ in 0..11 {
        play.pass(5 * SECOND);
        assert_eq!(play.heartbeat("b"), Err(ResponseError::RebalanceInProgress), "alive, and it does not join");
    }
    assert!(!play.joined.contains_key(&a));
    play.pass(5 * SECOND);
    assert_eq!((play.joined[&a].members.len(), play.joined[&c].error), (2, None));
    assert_eq!(play.heartbeat("b"), Err(ResponseError::UnknownMemberId));
}

#[test]
fn a_silent_member_is_out_after_its_session_and_the_others_share_anew() {
    let mut play = Play::stable(&["a", "b", "c"]);
    for _ in 0..3 {
        play.pass(4 * SECOND);
        let _ = (play.heartbeat("a"), play.heartbeat("b"));
    }
    assert_eq!(play.group.state(), StateName::PreparingRebalance);
    let (a, b) = (play.join("a"), play.join("b"));
    assert_eq!((play.joined[&a].members.len(), play.joined[&b].error), (2, None));
}

#[test]
fn a_member_that_does_not_ask_for_its_assignment_is_out() {
    let mut play = Play::new();
    play.join("a");
    play.join("b");
    play.join("a");
    let a = play.sync("a", &[("a", "1"), ("b", "2")]);
    assert_eq!(play.assignment(a), b"1");
    for _ in 0..12 {
        play.pass(5 * SECOND);
        let _ = (play.heartbeat("a"), play.heartbeat("b"));
    }
    assert_eq!(play.heartbeat("b"), Err(ResponseError::UnknownMemberId));
    assert_eq!(play.heartbeat("a"), Err(ResponseError::RebalanceInProgress));
}

#[test]
fn a_new_client_is_first_told_its_id_and_has_a_session_to_come_back_with_it() {
    let mut play = Play::new();
    let first = play.join_with(Join { needs_known_id: true, ..asking("a") });
    let told = play.joined[&first].clone();
    assert_eq!((told.error, &*told.member_id), (Some(ResponseError::MemberIdRequired), "a"));
    assert_eq!(play.group.state(), StateName::Empty);
    assert_eq!(play.heartbeat("a"), Err(ResponseError::UnknownMemberId));
    let again = play.join_with(Join { member_id: told.member_id, needs_known_id: true, ..asking("x") });
    assert_eq!(play.joined[&again].error, None);
    assert_eq!(&*play.joined[&again].member_id, "a");

    play.join_with(Join { needs_known_id: true, ..asking("late") });
    play.pass(SESSION);
    let late = play.join_with(Join { member_id: Arc::from("late"), ..asking("x") });
    assert_eq!(play.joined[&late].error, Some(ResponseError::UnknownMemberId));
}

#[test]
fn a_rebalance_waits_for_those_who_were_told_their_ids_but_not_for_ever() {
    let mut play = Play::stable(&["a"]);
    play.join_with(Join { needs_known_id: true, ..asking("b") });
    play.join_with(Join { needs_known_id: true, ..asking("never") });
    let b = play.join_with(Join { member_id: Arc::from("b"), ..asking("x") });
    let a = play.join("a");
    assert!(!play.joined.contains_key(&a));
    play.pass(SESSION);
    assert_eq!((play.joined[&a].members.len(), play.joined[&b].error), (2, None));
}

#[test]
fn a_static_member_comes_back_to_what_it_had_and_fences_its_former_self() {
    let mut play = Play::new();
    play.join_with(static_asking("a-1", "a"));
    play.join_with(static_asking("b-1", "b"));
    let again = Join { member_id: Arc::from("a-1"), ..static_asking("x", "a") };
    play.join_with(again);
    play.sync("b-1", &[]);
    play.sync("a-1", &[("a-1", "1"), ("b-1", "2")]);
    let generation = play.group.generation;

    let b = play.join_with(static_asking("b-2", "b"));
    let joined = &play.joined[&b];
    assert_eq!((joined.error, joined.generation, &*joined.member_id), (None, generation, "b-2"), "no rebalance");
    let b = play.sync("b-2", &[]);
    assert_eq!(play.assignment(b), b"2");
    let fenced = play.group.heartbeat(&Arc::from("b-1"), Some(&Arc::from("b")), generation, play.now);
    assert_eq!(fenced, Err(ResponseError::FencedInstanceId));

    // The leader: told that it need not assign, or, if it does not know of that, that somebody else leads.
    let a = play.join_with(static_asking("a-2", "a"));
    assert!(play.joined[&a].skip_assignment && &*play.joined[&a].leader == "a-2");
    assert_eq!(play.joined[&a].members.len(), 2);
    let a = play.join_with(Join { knows_skipping: false, ..static_asking("a-3", "a") });
    assert!(!play.joined[&a].skip_assignment && &*play.joined[&a].leader == "a-2");
    assert_eq!(play.joined[&a].members.len(), 0);
    let a = play.sync("a-3", &[("a-3", "other")]);
    assert_eq!(play.assignment(a), b"1");
    assert_eq!(play.group.members.len(), 2);
}

#[test]
fn a_static_member_keeps_its_place_through_a_rebalance_until_its_session_ends() {
    let mut play = Play::new();
    play.join_with(static_asking("a-1", "a"));
    play.sync("a-1", &[("a-1", "1")]);
    let b = play.join("b");
    play.pass(SESSION - SECOND);
    assert!(!play.joined.contains_key(&b));
    play.pass(SECOND);
    assert_eq!(play.joined[&b].members.len(), 1, "gone with its session");
}

#[test]
fn the_protocol_that_most_members_like_best_among_the_common_ones_is_taken() {
    let with = |name: &str, protocols: &[&str]| Join {
        protocols: protocols.iter().map(|p| ((*p).to_owned(), Bytes::copy_from_slice(p.as_bytes()))).collect(),
        ..asking(name)
    };
    let mut play = Play::new();
    play.join_with(with("a", &["only-a", "range", "sticky"]));
    play.join_with(with("b", &["sticky", "range"]));
    play.join_with(with("c", &["sticky", "range", "only-c"]));
    let other = play.join_with(with("d", &["only-d"]));
    assert_eq!(play.joined[&other].error, Some(ResponseError::InconsistentGroupProtocol));
    let other = play.join_with(Join { protocol_type: "connect".to_owned(), ..with("d", &["range"]) });
    assert_eq!(play.joined[&other].error, Some(ResponseError::InconsistentGroupProtocol));
    let a = play.join_with(Join { member_id: Arc::from("a"), ..with("x", &["only-a", "range", "sticky"]) });
    assert_eq!(play.joined[&a].protocol.as_deref(), Some("sticky"));
    assert!(play.joined[&a].members.iter().all(|member| member.metadata == "sticky"));
    let none = Play::new().group.join(with("e", &[]), Ticket(1), Instant::now());
    assert!(matches!(&none[..], [Action::Joined(_, joined)] if joined.error.is_some()));
}

#[test]
fn members_that_start_together_meet_in_one_generation_when_there_is_a_delay() {
    let mut play = Play::with(GroupSettings { initial_delay: 3 * SECOND, most_members: 10 });
    let a = play.join("a");
    play.pass(2 * SECOND);
    let b = play.join("b");
    play.pass(2 * SECOND);
    assert!(!play.joined.contains_key(&a), "it was put off for the second one");
    play.pass(2 * SECOND);
    assert_eq!((play.joined[&a].generation, play.joined[&b].generation), (1, 1));
    assert_eq!(play.joined[&a].members.len(), 2);
}

#[test]
fn a_full_group_takes_nobody_and_lets_its_members_join_again() {
    let mut play = Play::with(GroupSettings { initial_delay: Duration::ZERO, most_members: 2 });
    play.join("a");
    play.join_with(Join { needs_known_id: true, ..asking("b") });
    let c = play.join("c");
    assert_eq!(play.joined[&c].error, Some(ResponseError::GroupMaxSizeReached));
    let b = play.join_with(Join { member_id: Arc::from("b"), ..asking("x") });
    play.join("a");
    assert_eq!(play.joined[&b].error, None);
}

#[test]
fn whoever_hangs_up_while_it_joins_is_gone_if_its_id_was_never_told() {
    let mut play = Play::stable(&["a"]);
    let b = play.join("b");
    let actions = play.group.hung_up(b, play.now);
    play.take(actions);
    assert!(!play.group.members.contains_key("b"));
    let a = play.join("a");
    assert_eq!(play.joined[&a].members.len(), 1);

    // Under an id that it knows it may come back while its session lasts.
    play.join_with(Join { needs_known_id: true, ..asking("c") });
    let c = play.join_with(Join { member_id: Arc::from("c"), ..asking("x") });
    let actions = play.group.hung_up(c, play.now);
    play.take(actions);
    let a = play.join("a");
    assert!(!play.joined.contains_key(&a));
    play.pass(SESSION);
    assert_eq!(play.joined[&a].members.len(), 1);
}

#[test]
fn a_member_that_asks_twice_is_answered_twice_and_counted_once() {
    let mut play = Play::stable(&["a"]);
    play.join_with(Join { needs_known_id: true, ..asking("b") });
    let known = || Join { member_id: Arc::from("b"), ..asking("x") };
    let (first, second) = (play.join_with(known()), play.join_with(known()));
    assert_eq!(play.joined[&first].error, Some(ResponseError::RebalanceInProgress));
    let a = play.join("a");
    assert_eq!((play.joined[&a].members.len(), play.joined[&second].error), (2, None));
    // The answer to the join was lost: it is told again, and nobody else is disturbed.
    let third = play.join_with(Join { protocols: asking("x").protocols, ..known() });
    assert_eq!(play.joined[&third].generation, play.joined[&second].generation);
    assert_eq!(play.group.state(), StateName::CompletingRebalance);
}

#[test]
fn offsets_are_taken_from_members_of_the_generation_and_from_nobody_else_while_there_are_some() {
    let mut play = Play::new();
    let check =
        |play: &mut Play, name: &str, generation| play.group.check_commit(&Arc::from(name), None, generation, play.now);
    assert_eq!(check(&mut play, "", -1), Ok(()));
    play.join("a");
    assert_eq!(check(&mut play, "a", 1), Err(ResponseError::RebalanceInProgress));
    play.sync("a", &[]);
    assert_eq!(check(&mut play, "a", 1), Ok(()));
    assert_eq!(check(&mut play, "a", 0), Err(ResponseError::IllegalGeneration));
    assert_eq!(check(&mut play, "b", 1), Err(ResponseError::UnknownMemberId));
    assert_eq!(check(&mut play, "", -1), Err(ResponseError::UnknownMemberId));
    play.join("b");
    assert_eq!(check(&mut play, "a", 1), Ok(()), "what it has read before it joins again");
}

/// One thing that happens to a group of up to six clients.
#[derive(Clone, Debug)]
enum Event {
    Join { client: usize, fixed: bool, known_id: bool },
    Sync { client: usize, generation: i32 },
    Heartbeat { client: usize },
    Leave { client: usize },
    HangUp { which: usize },
    Pass { seconds: u64 },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let client = 0..6_usize;
    let event = prop_oneof![
        4 => (client.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(client, fixed, known_id)| Event::Join { client, fixed, known_id }),
        4 => (client.clone(), -1..=0_i32).prop_map(|(client, generation)| Event::Sync { client, generation }),
        2 => client.clone().prop_map(|client| Event::Heartbeat { client }),
        1 => client.prop_map(|client| Event::Leave { client }),
        1 => any::<usize>().prop_map(|which| Event::HangUp { which }),
        2 => (0..40_u64).prop_map(|seconds| Event::Pass { seconds }),
    ];
    prop::collection::vec(event, 0..120)
}

proptest! {
    /// Whatever happens in whatever order: nobody is answered twice or forgotten, each generation has one leader and one
    /// protocol, and once everybody is silent the group comes to its end and holds nothing.
    #[test]
    fn any_order_of_events_leaves_nobody_waiting(events in events(), delay in 0..5_u32) {
        let mut play = Play::with(GroupSettings { initial_delay: delay * SECOND, most_members: 5 });
        let mut ids: Vec<Arc<str>> = vec![Arc::from(""); 6];
        let mut asked: BTreeSet<Ticket> = BTreeSet::new();
        let mut hung_up: BTreeSet<Ticket> = BTreeSet::new();
        let mut clients: BTreeMap<Ticket, usize> = BTreeMap::new();
        let mut made = 0;
        for event in events {
            match event {
                Event::Join { client, fixed, known_id } => {
                    made += 1;
                    let mut join = asking(&format!("{client}-{made}"));
                    join.member_id = Arc::clone(&ids[client]);
                    join.needs_known_id = known_id;
                    join.instance = fixed.then(|| Arc::from(format!("i{client}")));
                    let ticket = play.join_with(join);
                    asked.insert(ticket);
                    clients.insert(ticket, client);
                }
                Event::Sync { client, generation } => {
                    let ticket = play.ticket();
                    let sync = Sync {
                        generation: play.group.generation + generation,
                        member_id: Arc::clone(&ids[client]),
                        instance: None,
                        protocol_type: Some("consumer".to_owned()),
                        protocol: None,
                        assignments: ids.iter().map(|id| (Arc::clone(id), Bytes::copy_from_slice(id.as_bytes()))).collect(),
                    };
                    let actions = play.group.sync(sync, ticket, play.now);
                    play.take(actions);
                    asked.insert(ticket);
                }
                Event::Heartbeat { client } => {
                    let id = Arc::clone(&ids[client]);
                    let _ = play.heartbeat(&id);
                }
                Event::Leave { client } => {
                    let id = Arc::clone(&ids[client]);
                    let _ = play.leave(&id);
                }
                Event::HangUp { which } => {
                    let waiting: Vec<_> =
                        asked.iter().filter(|t| !play.joined.contains_key(t) && !play.synced.contains_key(t)).copied().collect();
                    if let Some(ticket) = waiting.get(which % waiting.len().max(1)).copied()
                        && hung_up.insert(ticket)
                    {
                        let actions = play.group.hung_up(ticket, play.now);
                        play.take(actions);
                    }
                }
                Event::Pass { seconds } => play.pass(seconds as u32 * SECOND),
            }
            for (ticket, client) in &clients {
                if let Some(joined) = play.joined.get(ticket)
                    && matches!(joined.error, None | Some(ResponseError::MemberIdRequired))
                {
                    ids[*client] = Arc::clone(&joined.member_id);
                }
            }
            let group = &play.group;
            prop_assert!(group.members.len() + group.pending.len() <= 5);
            prop_assert!(group.members.is_empty() || group.leader.as_ref().is_some_and(|id| group.members.contains_key(id)));
            prop_assert_eq!(group.instances.len(), group.members.values().filter(|m| m.instance.is_some()).count());
            if matches!(group.phase, Phase::Stable) {
                prop_assert!(group.members.values().all(|m| !m.waits() && group.protocol.is_some()));
            }
        }
        let mut leaders: BTreeMap<i32, BTreeSet<Arc<str>>> = BTreeMap::new();
        for joined in play.joined.values().filter(|joined| joined.error.is_none() && !joined.members.is_empty()) {
            if !joined.skip_assignment {
                leaders.entry(joined.generation).or_default().insert(Arc::clone(&joined.leader));
            }
        }
        prop_assert!(leaders.values().all(|leaders| leaders.len() == 1), "{leaders:?}");

        play.pass(Duration::from_secs(10_000));
        prop_assert!(play.group.is_over(), "{:?}", play.group);
        prop_assert_eq!(play.group.bytes(), 0);
        prop_assert_eq!(play.group.next_deadline(), None);
        for ticket in asked {
            let answered = play.joined.contains_key(&ticket) || play.synced.contains_key(&ticket);
            prop_assert!(answered != hung_up.contains(&ticket), "{ticket:?}");
        }
    }
}
