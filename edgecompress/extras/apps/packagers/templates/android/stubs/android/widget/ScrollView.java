package android.widget;

import android.content.Context;
import android.view.ViewGroup;

public class ScrollView extends ViewGroup {
    public ScrollView(Context context) {
        super(context);
    }

    public void setFitsSystemWindows(boolean fitSystemWindows) {}
}
