package main

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	eventrecord "k8s.io/client-go/tools/record"
)

// elect has two candidates for one Lease: one leads, stops, and the other takes over.
func elect(ctx context.Context, c clients) {
	leads := make(chan string, 2)
	candidate := func(identity string) (stop func()) {
		ctx, cancel := context.WithCancel(ctx)
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: c.namespace},
			Client:     c.typed.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		}
		elector := try(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads <- identity },
				OnStoppedLeading: func() {},
			},
		}))
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			elector.Run(ctx)
		}()
		return func() {
			cancel()
			<-stopped
		}
	}
	leases := c.typed.CoordinationV1().Leases(c.namespace)
	check("leader election: one leads", func() {
		stopFirst := candidate("first")
		same("the leader", next("a leader", leads), "first")
		stopSecond := candidate("second")
		defer stopSecond()
		renewed := try(leases.Get(ctx, "leader", metav1.GetOptions{})).Spec.RenewTime
		until(ctx, "the leader renews", func() bool {
			lease := try(leases.Get(ctx, "leader", metav1.GetOptions{}))
			same("the holder", *lease.Spec.HolderIdentity, "first")
			return lease.Spec.RenewTime.After(renewed.Time)
		})
		stopFirst()
		same("the leader", next("the next leader", leads), "second")
		lease := try(leases.Get(ctx, "leader", metav1.GetOptions{}))
		same("the holder", *lease.Spec.HolderIdentity, "second")
		same("transitions", *lease.Spec.LeaseTransitions, 1)
	})
}

// record writes Events with both recorders of client-go.
func record(ctx context.Context, c clients) {
	about := try(c.typed.CoreV1().ConfigMaps(c.namespace).Create(ctx, configMap("noted", nil), metav1.CreateOptions{}))
	check("events: core/v1, counted when repeated", func() {
		broadcaster := eventrecord.NewBroadcaster(eventrecord.WithContext(ctx))
		defer broadcaster.Shutdown()
		broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: c.typed.CoreV1().Events(c.namespace)})
		recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "interop"})
		for range 3 {
			recorder.Eventf(about, corev1.EventTypeNormal, "Tried", "tried %s", about.Name)
		}
		selected := metav1.ListOptions{FieldSelector: "involvedObject.name=noted,reason=Tried,type=Normal"}
		until(ctx, "the event is counted", func() bool {
			list := try(c.typed.CoreV1().Events(c.namespace).List(ctx, selected))
			return len(list.Items) == 1 && list.Items[0].Count == 3 && list.Items[0].Message == "tried noted"
		})
	})
	check("events: events.k8s.io/v1, a series when repeated", func() {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.typed.EventsV1()})
		defer broadcaster.Shutdown()
		done(broadcaster.StartRecordingToSinkWithContext(ctx))
		recorder := broadcaster.NewRecorder(scheme.Scheme, "interop.tidings.dev/controller")
		find := func(is func(eventsv1.Event) bool) func() bool {
			return func() bool {
				list := try(c.typed.EventsV1().Events(c.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Noted"}))
				return len(list.Items) == 1 && is(list.Items[0])
			}
		}
		tell := func() {
			recorder.Eventf(about, nil, corev1.EventTypeWarning, "Noted", "Noting", "noted %s", about.Name)
		}
		tell()
		until(ctx, "the event is there", find(func(event eventsv1.Event) bool { return event.Note == "noted noted" }))
		tell()
		until(ctx, "the event is a series", find(func(event eventsv1.Event) bool { return event.Series != nil }))
		list := try(c.typed.CoreV1().Events(c.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Noted"}))
		same("the same Event in core/v1", list.Items[0].InvolvedObject.Name+" "+list.Items[0].Action, "noted Noting")
	})
	done(c.typed.CoreV1().ConfigMaps(c.namespace).Delete(ctx, "noted", metav1.DeleteOptions{}))
}

// review asks who we are and what we may do.
func review(ctx context.Context, c clients) {
	check("reviews", func() {
		asked := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: c.namespace, Verb: "update", Group: "apps", Resource: "deployments",
			},
		}}
		answer := try(c.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, asked, metav1.CreateOptions{}))
		same("the answer", answer.Status.Allowed, true)
		rules := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: c.namespace}}
		told := try(c.typed.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, rules, metav1.CreateOptions{}))
		same("there are rules", len(told.Status.ResourceRules) > 0, true)
		who := &authenticationv1.SelfSubjectReview{}
		user := try(c.typed.AuthenticationV1().SelfSubjectReviews().Create(ctx, who, metav1.CreateOptions{})).Status.UserInfo
		same("we are somebody", user.Username != "", true)
		member := false
		for _, group := range user.Groups {
			member = member || group == "system:masters"
		}
		same("we may do everything", member, true)
	})
}
